{% set computed = {
    "change_without_sink": "abs(norm_output::DOUBLE - norm_output_without_sink)",
    "change_without_last": "abs(norm_output::DOUBLE - norm_output_without_last)",
    "n_keys": "n_keys::DOUBLE",
    "top_is_other": "(top_contributor_role = 'other')::INTEGER::DOUBLE",
} %}
-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  attention_rows, head_levels
-- meaning: inputs of the taxonomy of heads, sequence by sequence: contributions of the sink, the last token and the
--          rest, change of the output without the sink or the last token, course of the cosines of s_N over ln N (each
--          N has weight 1/N, so that all of ln N counts alike), and the number of keys that contributions are spread
--          over; cosines are NULL for a head that attends to one key
CREATE OR REPLACE VIEW head_signatures AS
SELECT
{{ key_names("study", "sequence", "query", "layer", "head") }}
{% for name, meaning in signature.items() %}
    {{ computed.get(name, name ~ "::DOUBLE") }} AS {{ name }}, -- {{ meaning }}
{% endfor %}
FROM attention_rows
LEFT JOIN head_levels USING (study, sequence, query, layer, head)
