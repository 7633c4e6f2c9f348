-- grain:   one row per (sequence, query, layer, head) whose signature is impossible
-- inputs:  head_signatures, attention_rows, concentration
-- meaning: every signature has the norms and the concentration of its row of attention; cosines lie within -1 and 1
--          (up to rounding), a level and its change exist together, those of the sink only if it is attended, and none
--          for one key; removing a part changes the norm of the output by no more than the norm of the part (up to
--          float32)
SELECT sequence, query, layer, head, cos_sink_level, cos_last_level
FROM head_signatures AS signatures
LEFT JOIN attention_rows AS attended USING (study, sequence, query, layer, head)
LEFT JOIN concentration AS spread USING (study, sequence, query, layer, head)
WHERE
    study = $study
    AND (
        signatures.n_keys IS DISTINCT FROM attended.n_keys
        OR signatures.norm_y_0 IS DISTINCT FROM attended.norm_y_0
        OR signatures.norm_y_last <> attended.norm_y_last
        OR signatures.norm_rest <> attended.norm_rest
        OR signatures.cos_last_p05 IS DISTINCT FROM attended.cos_last_p05
        OR signatures.effective_contributors IS DISTINCT FROM spread.effective_contributors
        OR top_is_other IS DISTINCT FROM (top_contributor_role = 'other')::DOUBLE
        OR (change_without_sink IS NULL) <> (NOT sink_attended)
        OR NOT change_without_sink <= attended.norm_y_0 + 1e-5 * norm_output + 1e-37
        OR NOT change_without_last <= attended.norm_y_last + 1e-5 * norm_output + 1e-37
        OR coalesce(greatest(abs(cos_sink_level), abs(cos_sink_max), abs(cos_last_level)) > 1 + 1e-6, false)
        OR NOT isfinite(coalesce(cos_sink_change, 0) + coalesce(cos_last_change, 0))
        OR (cos_sink_level IS NULL) <> (cos_sink_change IS NULL)
        OR (cos_last_level IS NULL) <> (cos_last_change IS NULL)
        OR (coalesce(cos_sink_level, cos_sink_max) IS NOT NULL AND NOT sink_attended)
        OR (coalesce(cos_sink_level, cos_last_level, signatures.cos_last_p05) IS NOT NULL AND attended.n_keys = 1)
    )
