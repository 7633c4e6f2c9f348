-- grain:   one row, or none if nothing was measured
-- inputs:  arithmetic
-- meaning: the error of Recall in plain float32 arithmetic, in a sentence
SELECT
    format(
        'a float32 loop gives another Recall at {:.1f} % of the selections; at N = 4 by {:+.4f} on average',
        100 * avg(recall_differs),
        avg(recall_difference_at_4)
    ) AS finding
FROM arithmetic
WHERE arithmetic = 'float32_loop' AND recall_at_4 IS NOT NULL
HAVING count(*) > 0
