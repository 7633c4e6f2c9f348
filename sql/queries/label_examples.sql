-- grain:   one row per label that some head has
-- inputs:  head_taxonomy, heads, kinds; $study, $query
-- meaning: the clearest head of each kind: that with the largest margin, of those that meet the rule if any does
--          heads: how many have the label
SELECT label, layer, head, kv_head, margin, agreement, fits_rule, count(*) OVER (PARTITION BY label) AS heads
FROM head_taxonomy
JOIN heads USING (study, layer, head)
JOIN kinds() USING (label)
WHERE study = $study AND query = $query
QUALIFY row_number() OVER (PARTITION BY label ORDER BY fits_rule DESC, margin DESC, layer, head) = 1
ORDER BY place
