-- grain:   one row per (claim, member) of a family
-- inputs:  family_claims, family_members; $family
-- meaning: the verdicts of every member that has landed on every claim
SELECT claim, statement, study, member, value AS label, verdict, p_holm
FROM family_claims
JOIN family_members USING (family, study)
WHERE family = $family
ORDER BY claim, member
