-- grain:   one row per (layer, head)
-- inputs:  head_taxonomy; $study, $query
-- meaning: the kind of every head by the default thresholds, with the measures that decide it (Figure 8)
SELECT
    layer,
    head,
    label,
    nearest,
    single_key,
    margin,
    agreement,
    other_share,
    retriever_score,
    mixer_score,
    reset_score,
    sink_share,
    last_share,
    rest_share,
    cos_sink_max,
    cos_sink_level,
    cos_sink_change,
    cos_last_level,
    cos_last_change,
    cos_last_p05,
    effective_contributors
FROM head_taxonomy
WHERE study = $study AND query = $query
ORDER BY layer, head
