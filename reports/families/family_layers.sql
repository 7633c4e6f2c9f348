-- grain:   one row per (member, layer) of a family
-- inputs:  family_members, family_trends_model; $family, $quantity
-- meaning: a quantity of heads, mean over the heads of each layer, over the members; layer is NULL for a member that has
--          not landed
WITH trends AS (FROM family_trends_model WHERE family = $family AND quantity = $quantity AND layer IS NOT NULL)
SELECT members.study, member, members.value AS label, axis, layer, trends.value, value_low, value_high
FROM family_members AS members
LEFT JOIN trends USING (study)
WHERE members.family = $family
ORDER BY member, layer
