-- grain:   one row per (claim, member) of a family
-- inputs:  family_claims, family_members; $family
-- meaning: the verdicts of every member on every claim; NULL for a member that has not landed
WITH judged AS (FROM family_claims WHERE family = $family),
claims AS (SELECT claim, any_value(statement) AS statement FROM judged GROUP BY claim)
SELECT claims.claim, claims.statement, members.study, member, value AS label, axis, verdict, p_holm
FROM family_members AS members
CROSS JOIN claims
LEFT JOIN judged ON judged.study = members.study AND judged.claim = claims.claim
WHERE members.family = $family
ORDER BY claims.claim, member
