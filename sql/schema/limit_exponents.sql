-- grain:   one row per (study, measure, axis, query, n)
-- inputs:  selection_means_model, key_budgets_model
-- meaning: powers of N, and of the number of keys, with which the model's mean distance and its closeness to uniform
--          weights change: lines on two logarithmic axes through the mean curves. N runs over a log grid up to half of
--          the keys, beyond which the distance grows again in every head
CREATE TABLE limit_exponents (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- 'distance', over the norm of the output; 'effective_share' or 'n_90_share'
    axis VARCHAR NOT NULL, -- variable that it is fitted against: 'n', or 'n_keys', which needs queries with different numbers of keys
    query INTEGER, -- position of the query of a fit against n; NULL for one against n_keys
    n INTEGER, -- N of a fit of the distance against n_keys, a power of two; NULL for all others
    points INTEGER NOT NULL, -- number of points fitted [0, inf)
{{ interval_columns("exponent", "b of y = a x^b, by least squares of ln y over ln x; NULL for fewer than two points", "(-inf, inf)") }}
    level DOUBLE, -- a, y at x = 1 [0, inf)
    r2 DOUBLE -- share of the variance of ln y that the line explains; NULL if ln y does not vary [0, 1]
)
