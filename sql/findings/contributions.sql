-- grain:   one row, or none if nothing was measured
-- inputs:  attention_by_position
-- meaning: how much attention position 0 gets, and in how many heads, in a sentence
SELECT
    format(
        'position 0 gets {:.3g} % of the attention, and more than 30 % in {} of {} heads{}',
        100 * avg(mean_weight),
        count(*) FILTER (WHERE mean_weight > 0.3),
        count(*),
        CASE
            WHEN max(mean_weight) > 0.3 THEN format(
                '; most in layer {} head {}: {:.3g} %',
                arg_max(layer, mean_weight),
                arg_max(head, mean_weight),
                100 * max(mean_weight)
            )
            ELSE ''
        END
    ) AS finding
FROM attention_by_position
WHERE position = 0 AND query = (SELECT max(query) FROM attention_by_position)
HAVING count(*) > 0
