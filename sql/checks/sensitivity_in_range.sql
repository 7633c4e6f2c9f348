-- grain:   one row per spectral norm that no Jacobian of a softmax can have
-- inputs:  sensitivity, attention_rows, jacobian_bounds
-- meaning: every norm is that of a row of weights, and 0 <= spectral_norm <= 1/(2T) up to rounding
SELECT sequence, query, layer, head, temperature, spectral_norm
FROM sensitivity
LEFT JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE
    study = $study
    AND (
        n_keys IS NULL
        OR NOT temperature > 0
        OR NOT (spectral_norm >= 0 AND spectral_norm <= jacobian_bounds(temperature).half * (1 + 1e-15))
    )
