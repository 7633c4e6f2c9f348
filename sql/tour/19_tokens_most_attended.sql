-- grain:   one row per position, of the ten heaviest after the sink
-- inputs:  attention_by_position, tokens, last_query; $study
-- meaning: Which positions get most weight after the sink, from which head most, and which tokens are there?
WITH weights AS (
    FROM attention_by_position
    SELECT position, avg(mean_weight) AS weight, arg_max({'layer': layer, 'head': head}, mean_weight) AS heaviest_head
    WHERE study = $study AND query = last_query($study) AND position > 0
    GROUP BY position
    ORDER BY weight DESC, position
    LIMIT 10
)
FROM weights
JOIN tokens USING (position)
SELECT position, weight, heaviest_head, list(token ORDER BY sequence)[:5] AS first_tokens
WHERE study = $study
GROUP BY ALL
ORDER BY weight DESC, position
