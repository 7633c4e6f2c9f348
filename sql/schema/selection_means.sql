-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  counts of the metrics store
{% if model %}
-- meaning: mean Precision, Recall, F and specificity of the whole model over sequences and heads, with the same
--          intervals (Figure 5)
{% else %}
-- meaning: mean Precision, Recall, F and specificity of a head over sequences, with percentile intervals of 1000
--          bootstrap replicates, the same resampled sequences for all heads and N
{% endif %}
CREATE TABLE selection_means{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ key_columns("n") }}
{% if model %}
    heads INTEGER NOT NULL, -- number of heads that attend to more than n keys
{% endif %}
    sequences INTEGER NOT NULL, -- number of sequences averaged
{% for metric, meaning in means.items() %}
    {{ metric }} DOUBLE NOT NULL, -- mean {{ meaning }}
    {{ metric }}_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    {{ metric }}_ci_high DOUBLE{{ "," if not loop.last }} -- upper end of that interval
{% endfor %}
)
