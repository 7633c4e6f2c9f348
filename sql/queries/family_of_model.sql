-- grain:   one row per (member, quantity) of a family
-- inputs:  family_members, family_trends_model; $family
-- meaning: the quantities of the model over the members that have landed, with their intervals
SELECT study, member, members.value AS label, quantity, trends.value, value_low, value_high, trends.sequences
FROM family_trends_model AS trends
JOIN family_members AS members USING (family, study)
WHERE family = $family AND layer IS NULL
ORDER BY quantity, member
