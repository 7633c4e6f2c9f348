-- grain:   one row, or none if nothing was measured
-- inputs:  assumption_weights
-- meaning: how well the four phases of Assumption 3 describe the attention weights, in a sentence
SELECT
    format(
        'the phases of Assumption 3 could be fitted in {} of {} heads, with a median R² of {:.2f}',
        count(*) FILTER (WHERE status = 'ok'),
        count(*),
        median(r2_log) FILTER (WHERE status = 'ok')
    ) AS finding
FROM assumption_weights
WHERE query = (SELECT max(query) FROM assumption_weights)
HAVING count(*) FILTER (WHERE status = 'ok') > 0
