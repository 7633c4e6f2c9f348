-- grain:   one row per (sequence, query, layer, head) whose signature is missing, doubled, or impossible
-- inputs:  head_signatures, attention_rows
-- meaning: every row of attention has one signature with its own norms; levels of cosines lie within -1 and 1 (up to
--          rounding), a level and its change exist together, the sink's only where it is attended, and none for one key
SELECT
    sequence,
    query,
    layer,
    head,
    count(signatures.study) AS found,
    count(attended.study) AS expected,
    any_value(cos_sink_level) AS cos_sink_level,
    any_value(cos_last_level) AS cos_last_level
FROM (SELECT * FROM head_signatures WHERE study = $study) AS signatures
FULL JOIN (SELECT * FROM attention_rows WHERE study = $study) AS attended USING (sequence, query, layer, head)
GROUP BY sequence, query, layer, head
HAVING
    count(signatures.study) <> 1
    OR count(attended.study) <> 1
    OR bool_or(
        signatures.n_keys <> attended.n_keys
        OR signatures.norm_y_0 IS DISTINCT FROM attended.norm_y_0
        OR signatures.norm_y_last <> attended.norm_y_last
        OR signatures.norm_rest <> attended.norm_rest
        OR signatures.total_rest <> attended.total_rest
        OR coalesce(greatest(abs(cos_sink_level), abs(cos_last_level)) > 1 + 1e-6, false)
        OR NOT isfinite(coalesce(cos_sink_change, 0) + coalesce(cos_last_change, 0))
        OR (cos_sink_level IS NULL) <> (cos_sink_change IS NULL)
        OR (cos_last_level IS NULL) <> (cos_last_change IS NULL)
        OR (cos_sink_level IS NOT NULL AND NOT sink_attended)
        OR (coalesce(cos_sink_level, cos_last_level) IS NOT NULL AND attended.n_keys = 1)
    )
