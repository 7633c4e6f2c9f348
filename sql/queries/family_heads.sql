-- grain:   one row per (member, layer, head) of a family
-- inputs:  family_members, family_trends, onsets; $family, $quantity, $most
-- meaning: a quantity of every head over the members; if there are more than $most rows, of every second, third, ... member
--          and the last, and whether it appears over the members
WITH counted AS (
    SELECT ceil(count(*) / $most)::INTEGER AS step, max(member) AS last
    FROM family_trends
    JOIN family_members USING (family, study)
    WHERE family = $family AND quantity = $quantity
)
SELECT
    study,
    member,
    members.value AS label,
    layer,
    head,
    trends.value,
    value_low,
    value_high,
    onsets.state = 'appears' AS appears
FROM family_trends AS trends
JOIN family_members AS members USING (family, study)
JOIN counted ON member % step = 0 OR member = last
LEFT JOIN onsets USING (family, quantity, layer, head)
WHERE family = $family AND quantity = $quantity
ORDER BY member, layer, head
