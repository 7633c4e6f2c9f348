-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  counts of the metrics store
{% if model %}
-- meaning: mean Precision, Recall, F and specificity of the whole model: over the heads of each sequence, then over
--          sequences (Figure 5)
-- rows:    query_n
{% else %}
-- meaning: mean Precision, Recall, F and specificity of a head over sequences
-- rows:    head_n
{% endif %}
CREATE TABLE selection_means{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ key_columns("n") }}
{% if model %}
    heads INTEGER NOT NULL, -- number of heads that attend to more than n keys [1, inf)
{% endif %}
{{ key_columns("sequences") }}
{% for metric, meaning in means.items() %}
{{ interval_columns(metric, "mean " ~ meaning, "[0, 1]", kind="DOUBLE" if model else "FLOAT", last=loop.last) }}
{% endfor %}
)
