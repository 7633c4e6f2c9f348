-- grain:   one row per (member, layer) of a family
-- inputs:  family_members, family_trends_model; $family, $quantity
-- meaning: a quantity of heads, mean over the heads of each layer, over the members
SELECT study, member, members.value AS label, layer, trends.value, value_low, value_high
FROM family_trends_model AS trends
JOIN family_members AS members USING (family, study)
WHERE family = $family AND quantity = $quantity AND layer IS NOT NULL
ORDER BY member, layer
