-- grain:   one row per (study, query, measure, null_model, n)
-- inputs:  separability
-- meaning: the share of heads in which a measure is clearly above or clearly below the null, with the whole 95 %
--          interval of the difference on one side of 0: FROM more_than_chance(); if a head does not differ from the
--          null, its interval lies on either side with a probability of one in forty; NULL for one sequence, which has
--          no intervals; heads: those with more than n keys
CREATE MACRO more_than_chance() AS TABLE
SELECT
    study, query, measure, null_model, n,
    count(*) AS heads,
    avg((difference_low > 0)::INTEGER) AS above,
    avg((difference_high < 0)::INTEGER) AS below
FROM separability
WHERE layer IS NOT NULL
GROUP BY study, query, measure, null_model, n
