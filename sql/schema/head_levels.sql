-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  counts, norms, cosines and ingredients of the bounds in the metrics store
-- meaning: means over ln N of one head in one sequence, N from 2 on and each with a weight of about 1/N, also by thirds
--          of ln N; NULL for a head that attends to two keys or fewer, thirds for fewer than five; and the course of
--          the cosines of s_N, N from 1 on and each with a weight of 1/N
-- rows:    sequences * head_queries
CREATE TABLE head_levels (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
{% for name, meaning in {"recall": "Recall R(r_min, N)", "specificity": "specificity"}.items() %}
    {{ name }} DOUBLE, -- mean {{ meaning }} over ln N [0, 1]
    {{ name }}_first DOUBLE, -- the same over the first third of ln N [0, 1]
    {{ name }}_middle DOUBLE, -- over the middle third [0, 1]
    {{ name }}_last DOUBLE, -- over the last third [0, 1]
{% endfor %}
    precision_excess DOUBLE, -- mean of Precision above its floor n / n_keys, as a share of the possible range [0, 1]
    r_min DOUBLE, -- mean of r_min over the norm of s_N; NULL if s_N is 0 at every N [0, inf)
    premise_share DOUBLE, -- share of ln N at which the margin Δ of the theorems is above 0; NULL without bounds [0, 1]
{{ course_columns() }}
)
