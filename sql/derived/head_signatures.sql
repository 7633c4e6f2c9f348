-- inputs:  attention_rows, head_levels, concentration
-- meaning: the contributions of each row of attention, their spread, and the course of the cosines of s_N
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
{% for name in course %}
    {{ name }},
{% endfor %}
    cos_last_p05,
    effective_contributors,
    top_contributor_role = 'other' AS top_is_other
FROM attention_rows
JOIN concentration USING (study, sequence, query, layer, head)
LEFT JOIN head_levels USING (study, sequence, query, layer, head)
WHERE study = $study
