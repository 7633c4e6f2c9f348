-- grain:   one truth value
-- inputs:  family of bound_means, a mean and its bounds
-- meaning: whether a mean lies within its bounds, up to the rounding of stored bounds (1e-6); the scale-free family has
--          lower bounds only; NULL where a bound that the family has is NULL
CREATE MACRO inside(family, mean, lower, upper) AS
    CASE
        WHEN family = 'scale_free' AND lower IS NOT NULL THEN mean >= lower - 1e-6
        WHEN lower IS NOT NULL AND upper IS NOT NULL THEN mean >= lower - 1e-6 AND mean <= upper + 1e-6
    END
