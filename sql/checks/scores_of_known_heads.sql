-- grain:   one row per (source, layer, head) that is duplicated, not a head of the model, or has no finite score
-- inputs:  external_scores, heads
-- meaning: scores are of existing heads, once from each source
SELECT source, scores.layer, scores.head, count(*) AS actual, any_value(score) AS score
FROM external_scores AS scores
LEFT JOIN heads USING (study, layer, head)
WHERE scores.study = $study
GROUP BY source, scores.layer, scores.head
HAVING count(*) <> 1 OR count(heads.head) <> 1 OR NOT bool_and(isfinite(score))
