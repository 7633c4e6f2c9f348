-- grain:   one row per (sequence, query, layer, head) whose signature is missing, duplicated, or impossible
-- inputs:  head_signatures, attention_rows, concentration
-- meaning: every row of attention has one signature with its own norms and concentration; cosines lie within -1 and 1
--          (up to rounding), a level and its change exist together, those of the sink only if it is attended, and none
--          for one key; removing a part changes the norm of the output by no more than the norm of the part (up to
--          float32)
WITH known AS (
    SELECT *
    FROM attention_rows
    LEFT JOIN (
        SELECT study, sequence, query, layer, head, effective_contributors, top_contributor_role
        FROM concentration
    ) USING (study, sequence, query, layer, head)
    WHERE study = $study
)
SELECT
    sequence,
    query,
    layer,
    head,
    count(signatures.study) AS actual,
    count(known.study) AS expected,
    any_value(cos_sink_level) AS cos_sink_level,
    any_value(cos_last_level) AS cos_last_level
FROM (SELECT * FROM head_signatures WHERE study = $study) AS signatures
FULL JOIN known USING (sequence, query, layer, head)
GROUP BY sequence, query, layer, head
HAVING
    count(signatures.study) <> 1
    OR count(known.study) <> 1
    OR bool_or(
        signatures.n_keys <> known.n_keys
        OR signatures.norm_y_0 IS DISTINCT FROM known.norm_y_0
        OR signatures.norm_y_last <> known.norm_y_last
        OR signatures.norm_rest <> known.norm_rest
        OR signatures.cos_last_p05 IS DISTINCT FROM known.cos_last_p05
        OR signatures.effective_contributors IS DISTINCT FROM known.effective_contributors
        OR top_is_other IS DISTINCT FROM (top_contributor_role = 'other')::DOUBLE
        OR (change_without_sink IS NULL) <> (NOT sink_attended)
        OR NOT change_without_sink <= known.norm_y_0 + 1e-5 * norm_output + 1e-37
        OR NOT change_without_last <= known.norm_y_last + 1e-5 * norm_output + 1e-37
        OR coalesce(greatest(abs(cos_sink_level), abs(cos_sink_max), abs(cos_last_level)) > 1 + 1e-6, false)
        OR NOT isfinite(coalesce(cos_sink_change, 0) + coalesce(cos_last_change, 0))
        OR (cos_sink_level IS NULL) <> (cos_sink_change IS NULL)
        OR (cos_last_level IS NULL) <> (cos_last_change IS NULL)
        OR (coalesce(cos_sink_level, cos_sink_max) IS NOT NULL AND NOT sink_attended)
        OR (coalesce(cos_sink_level, cos_last_level, signatures.cos_last_p05) IS NOT NULL AND known.n_keys = 1)
    )
