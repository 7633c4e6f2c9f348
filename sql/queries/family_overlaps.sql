-- grain:   one row per (member, layer, head) of a family
-- inputs:  family_members, family_overlaps; $family, $n
-- meaning: the share of the N selected keys that a head of a member has in common with the member before, at the largest N
--          of at most $n
SELECT
    study,
    member,
    value AS label,
    reference,
    layer,
    head,
    n,
    found.sequences,
    found.alike,
    shared,
    shared_low,
    shared_high
FROM family_overlaps AS found
JOIN family_members AS members USING (family, study)
WHERE family = $family AND n <= $n
QUALIFY n = max(n) OVER (PARTITION BY study, layer, head)
ORDER BY member, shared, layer, head
