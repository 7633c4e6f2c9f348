-- grain:   one row, or none if nothing was measured
-- inputs:  assumption_norms
-- meaning: the sink's norm compared with that of the other value states, in a sentence
SELECT
    format(
        'the sink''s value state is shorter than the median one in {} of {} KV groups; in the median it is {:.2f} times as long',
        count(*) FILTER (WHERE lambda_sink < 1),
        count(*),
        median(lambda_sink)
    ) AS finding
FROM assumption_norms
WHERE lambda_sink IS NOT NULL
HAVING count(*) > 0
