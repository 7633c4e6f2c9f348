-- grain:   one row per (study, query, measure, null_model, n)
-- inputs:  separability
-- meaning: in what share of the heads a measure lies clearly above the null or clearly below it, the whole 95 % interval of
--          the difference on one side of 0: FROM more_than_chance(); of heads that differ in nothing from the null, one in
--          forty lies on either side; NULL for one sequence, which has no intervals; heads: those with more than n keys
CREATE MACRO more_than_chance() AS TABLE
SELECT
    study,
    query,
    measure,
    null_model,
    n,
    count(*) AS heads,
    avg((low > 0)::INTEGER) AS above,
    avg((high < 0)::INTEGER) AS below
FROM separability
GROUP BY study, query, measure, null_model, n
