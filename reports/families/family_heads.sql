-- grain:   one row per (member, layer, head) of a family
-- inputs:  family_members, family_trends, onsets; $family, $quantity, $most
-- meaning: a quantity of every head over the members; if there are more than $most rows, of every second, third, ... member
--          and the last, and whether it appears over the members; layer and head are NULL for a member that has not landed
WITH trends AS (FROM family_trends WHERE family = $family AND quantity = $quantity),
counted AS (
    SELECT greatest(1, ceil(count(*) / $most))::INTEGER AS step, max(member) AS last
    FROM trends
    JOIN family_members USING (family, study)
)
SELECT
    members.study, member,
    members.value AS label,
    axis, layer, head, trends.value, value_low, value_high,
    onsets.state = 'appears' AS appears
FROM family_members AS members
CROSS JOIN counted
LEFT JOIN trends USING (family, study)
LEFT JOIN onsets USING (family, quantity, layer, head)
WHERE members.family = $family AND (member % step = 0 OR member = last)
ORDER BY member, layer, head
