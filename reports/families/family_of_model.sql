-- grain:   one row per (member, quantity) of a family
-- inputs:  family_members, family_trends_model; $family
-- meaning: the quantities of the model over the members, with their intervals; NULL for a member that has not landed
WITH trends AS (FROM family_trends_model WHERE family = $family AND layer IS NULL)
SELECT
    members.study, member,
    members.value AS label,
    axis, quantity, trends.value, value_low, value_high, trends.sequences
FROM family_members AS members
CROSS JOIN (SELECT DISTINCT quantity FROM trends)
LEFT JOIN trends USING (study, quantity)
WHERE members.family = $family
ORDER BY quantity, member
