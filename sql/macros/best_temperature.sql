-- grain:   one row per (study, query, layer, head) that attends to two keys or more
-- inputs:  temperature_means; an N, and a measure
-- meaning: the temperature of a study's grid at which a measure of the selection of at_n keys is largest, for every
--          head: FROM best_temperature(16); measure: 'auc' or 'recall'; of equal values, the one nearest to 1 on a log
--          axis, then the lower. n: the largest N of the log grid up to at_n; value_at_1: the measure at T = 1; gain:
--          difference of the best from that, with its interval over sequences, all NULL without T = 1 in the grid; the
--          best of several exceeds its expectation, so an interval above 0 is not yet evidence
CREATE MACRO best_temperature(at_n := 16, measure := 'auc') AS TABLE
WITH asked AS (
    SELECT
        *,
        CASE measure
            WHEN 'auc' THEN auc
            WHEN 'recall' THEN recall
            ELSE error('measure must be ''auc'' or ''recall''')
        END AS value,
        CASE measure WHEN 'auc' THEN auc_gain_low ELSE recall_gain_low END AS gain_low,
        CASE measure WHEN 'auc' THEN auc_gain_high ELSE recall_gain_high END AS gain_high
    FROM temperature_means
    WHERE n <= CASE WHEN at_n >= 1 THEN at_n ELSE error('at_n must be 1 or more') END
    QUALIFY n = max(n) OVER (PARTITION BY study, query, layer, head)
),
ranked AS (
    SELECT *, (value, -abs(ln(temperature)), -temperature) AS rank
    FROM asked
)
SELECT
    study, query, layer, head, n,
    any_value(sequences) AS sequences,
    arg_max(temperature, rank) AS temperature,
    max(value) AS value,
    any_value(value) FILTER (WHERE temperature = 1) AS value_at_1,
    max(value) - any_value(value) FILTER (WHERE temperature = 1) AS gain,
    arg_max(gain_low, rank) AS gain_low,
    arg_max(gain_high, rank) AS gain_high
FROM ranked
GROUP BY study, query, layer, head, n
