-- grain:   one row per sequence, of the first five
-- inputs:  tokens; $study
-- meaning: How do the texts that the model has read begin?
FROM tokens
SELECT sequence, count(*) AS tokens, string_agg(token, '' ORDER BY position) FILTER (WHERE position < 12) AS opening
WHERE study = $study AND sequence < 5
GROUP BY ALL
ORDER BY sequence
