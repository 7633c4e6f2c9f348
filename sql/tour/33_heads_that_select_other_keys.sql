-- grain:   one row per (family, study, layer, head), of the ten of each study that share the fewest keys
-- inputs:  family_overlaps
-- meaning: Which heads of a member select other keys than the member before, such as those of Q4_1 than those of Q8_0, and
--          how many heads do? At N = 4, exactly
SELECT
    family, study, reference, layer, head,
    n * (1 - shared) AS other_keys,
    sequences - alike AS sequences_with_others,
    sequences,
    count(*) OVER (PARTITION BY family, study) AS heads_that_differ
FROM family_overlaps
WHERE n = 4 AND alike < sequences
QUALIFY row_number() OVER (PARTITION BY family, study ORDER BY shared, layer, head) <= 10
ORDER BY family, study, shared, layer, head
