-- grain:   one row per member of a family
-- inputs:  family_members; $family
-- meaning: the members in order, and whether each has landed
SELECT study, member, axis, value, landed, sequences, alike
FROM family_members
WHERE family = $family
ORDER BY member
