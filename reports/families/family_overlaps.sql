-- grain:   one row per (member, layer, head) of a family, of the $heads of each member that share the fewest keys
-- inputs:  family_members, family_overlaps; $family, $n, $heads
-- meaning: the share of the N selected keys that a head of a member has in common with the member before, at the largest N
--          of at most $n, and how many heads of the member do not select the same keys in all sequences
WITH largest AS (
    SELECT study, layer, head, max(n) AS n
    FROM family_overlaps
    WHERE family = $family AND n <= $n
    GROUP BY ALL
)
SELECT
    study, member,
    value AS label,
    reference, layer, head, n, found.sequences, found.alike, shared, shared_low, shared_high,
    count(*) OVER same AS heads,
    count_if(found.alike < found.sequences) OVER same AS heads_changed
FROM family_overlaps AS found
JOIN largest USING (study, layer, head, n)
JOIN family_members AS members USING (family, study)
WHERE family = $family
WINDOW same AS (PARTITION BY study)
QUALIFY row_number() OVER (PARTITION BY study ORDER BY shared, layer, head) <= $heads
ORDER BY member, shared, layer, head
