-- grain:   one row per (sequence, query, layer, head) whose n do not run from 1 to n_keys - 1, each once
-- inputs:  selection_counts
-- meaning: no selection is missing or duplicated (a set of bits counts distinct n five times faster than
--          count(DISTINCT))
SELECT sequence, query, layer, head, count(*) AS found, any_value(n_keys) - 1 AS expected
FROM selection_counts
WHERE study = $study
GROUP BY sequence, query, layer, head
HAVING
    count(*) <> any_value(n_keys) - 1
    OR bit_count(bitstring_agg(n)) <> count(*)
    OR min(n) <> 1
    OR max(n) <> any_value(n_keys) - 1
