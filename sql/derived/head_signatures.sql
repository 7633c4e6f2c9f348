-- inputs:  attention_rows, selection_counts, concentration, weighted_level, weighted_slope
-- meaning: the contributions of each row of attention, and a straight line through each of both cosines over ln N, with
--          weights of 1/N; ln N is centred at the middle of its range, which is close to its weighted median; the sink
--          is selected at the N that have a_0
WITH points AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        ln(n_keys - 1) AS reach,
        ln(n) - reach / 2 AS x,
        1 / n AS weight,
        a_0,
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
        max(cos_sink) FILTER (WHERE a_0 IS NOT NULL) AS cos_sink_max,
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
    attention_rows.n_keys,
    norm_y_0,
    norm_y_last,
    norm_rest,
    abs(norm_output::DOUBLE - norm_output_without_sink) AS change_without_sink,
    abs(norm_output::DOUBLE - norm_output_without_last) AS change_without_last,
    cos_sink_max,
    cos_sink_level,
    cos_sink_change,
    cos_last_level,
    cos_last_change,
    cos_last_p05,
    effective_contributors,
    top_contributor_role = 'other' AS top_is_other
FROM attention_rows
JOIN concentration USING (study, sequence, query, layer, head)
LEFT JOIN lines USING (sequence, query, layer, head)
WHERE study = $study
