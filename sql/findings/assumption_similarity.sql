-- grain:   one row, or none if nothing was measured
-- inputs:  assumption_similarity
-- meaning: the decay of the cosine of two value states, in a sentence
SELECT
    format('cosines of value states decay by β = {:.2f} per token in the median KV group', median(beta)) AS finding
FROM assumption_similarity
WHERE status = 'ok'
HAVING count(*) > 0
