-- grain:   one row per (layer, kv_head) whose principal directions are missing, duplicated, or impossible
-- inputs:  principal_directions, heads
-- meaning: every KV head has its principal directions; shares descend, are not negative and sum to 1 at most, those
--          beyond head_dim are 0, and the effective dimension lies between 1 and head_dim (each up to rounding); all
--          are NULL exactly if status is 'zero'
WITH wanted AS (
    SELECT DISTINCT layer, kv_head, head_dim
    FROM heads
    WHERE study = $study
)
SELECT
    layer,
    kv_head,
    count(found.study) AS found,
    any_value(status) AS status,
    any_value(effective_dimension) AS effective_dimension,
    any_value(head_dim) AS head_dim
FROM (SELECT * FROM principal_directions WHERE study = $study) AS found
FULL JOIN wanted USING (layer, kv_head)
GROUP BY layer, kv_head
HAVING
    count(found.study) <> 1
    OR count(head_dim) <> 1
    OR NOT bool_and(
        coalesce(
            CASE status
                WHEN 'ok' THEN
                    share_1 >= share_2
                    AND share_2 >= share_3
                    AND share_3 >= 0
                    AND share_1 + share_2 + share_3 <= 1 + 1e-9
                    AND (share_2 = 0 OR head_dim > 1)
                    AND (share_3 = 0 OR head_dim > 2)
                    AND effective_dimension >= 1 - 1e-9
                    AND effective_dimension <= head_dim + 1e-6
                WHEN 'zero' THEN coalesce(share_1, share_2, share_3, effective_dimension) IS NULL
            END,
            false
        )
    )
