-- grain:   one row per spectral norm that no Jacobian of a softmax can have
-- inputs:  sensitivity, attention_rows, jacobian_bounds
-- meaning: 0 <= spectral_norm <= 1/(2T) up to rounding, and every head's row of weights has as many temperatures as any
--          other, each once
WITH counted AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        count(*) AS actual,
        count(DISTINCT temperature) AS several,
        bool_and(
            temperature > 0
            AND spectral_norm >= 0
            AND spectral_norm <= jacobian_bounds(temperature).half * (1 + 1e-15)
        ) AS possible
    FROM sensitivity
    WHERE study = $study
    GROUP BY sequence, query, layer, head
)
SELECT sequence, query, layer, head, actual, several, possible
FROM counted
FULL JOIN (SELECT * FROM attention_rows WHERE study = $study) USING (sequence, query, layer, head)
WHERE
    actual IS NULL
    OR n_keys IS NULL
    OR several <> actual
    OR actual <> (SELECT max(actual) FROM counted)
    OR NOT coalesce(possible, false)
