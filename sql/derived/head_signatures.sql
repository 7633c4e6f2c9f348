-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  attention_rows, selection_counts, weighted_level, weighted_slope
-- meaning: what each row of attention contributes, beside a straight line through either cosine over ln N, with weights
--          of 1/N; ln N is taken from its middle, about which half of the weight lies on either side
WITH points AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        ln(n_keys - 1) AS reach,
        ln(n) - reach / 2 AS x,
        1 / n AS weight,
        cos_sink::DOUBLE AS cos_sink,
        cos_last::DOUBLE AS cos_last
    FROM selection_counts
    WHERE study = $study
),
lines AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        weighted_level(cos_sink, weight) AS cos_sink_level,
        weighted_slope(cos_sink, x, weight) * any_value(reach) AS cos_sink_change,
        weighted_level(cos_last, weight) AS cos_last_level,
        weighted_slope(cos_last, x, weight) * any_value(reach) AS cos_last_change
    FROM points
    GROUP BY sequence, query, layer, head
)
SELECT
    $study AS study,
    sequence,
    query,
    layer,
    head,
    n_keys,
    norm_y_0,
    norm_y_last,
    norm_rest,
    total_rest,
    cos_sink_level,
    cos_sink_change,
    cos_last_level,
    cos_last_change
FROM attention_rows
LEFT JOIN lines USING (sequence, query, layer, head)
WHERE study = $study
