-- grain:   one row per (query, n) whose sink effect is missing, duplicated, or not a correlation
-- inputs:  sink_effect, selection_means_model, heads
-- meaning: every n of the model's means has one row; correlations and ends of intervals lie within -1 and 1 (up to
--          rounding) and require three heads; an interval has two ends in order and requires a correlation and several
--          sequences, and need not contain its correlation
WITH wanted AS (
    SELECT query, n
    FROM selection_means_model
    WHERE study = $study
),
found AS (
    SELECT
        *,
        coalesce(
            heads BETWEEN 0 AND (SELECT count(*) FROM heads WHERE study = $study)
            AND (correlation IS NULL OR (abs(correlation) <= 1 + 1e-9 AND heads > 2))
            AND (correlation_ci_low IS NULL) = (correlation_ci_high IS NULL)
            AND (
                correlation_ci_low IS NULL
                OR (
                    correlation_ci_low <= correlation_ci_high
                    AND correlation_ci_low >= -1 - 1e-9
                    AND correlation_ci_high <= 1 + 1e-9
                    AND correlation IS NOT NULL
                    AND sequences > 1
                )
            ),
            false
        ) AS possible
    FROM sink_effect
    WHERE study = $study
)
SELECT
    query,
    n,
    count(found.study) AS found,
    count(wanted.n) AS expected,
    any_value(heads) AS heads,
    any_value(correlation) AS correlation,
    any_value(correlation_ci_low) AS correlation_ci_low,
    any_value(correlation_ci_high) AS correlation_ci_high
FROM found
FULL JOIN wanted USING (query, n)
GROUP BY query, n
HAVING count(found.study) <> 1 OR count(wanted.n) <> 1 OR NOT bool_and(possible)
