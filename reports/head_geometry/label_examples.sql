-- grain:   one row per label that some head has
-- inputs:  head_taxonomy, heads, kinds; $study, $query
-- meaning: the clearest head of each label: the one with the largest margin, which for 'Other' is the head farthest
--          from all rules; heads: number of heads with the label
SELECT label, layer, head, kv_head, margin, agreement, count(*) OVER (PARTITION BY label) AS heads
FROM head_taxonomy
JOIN heads USING (study, layer, head)
JOIN kinds() USING (label)
WHERE study = $study AND query = $query
QUALIFY row_number() OVER (PARTITION BY label ORDER BY margin DESC NULLS LAST, layer, head) = 1
ORDER BY place
