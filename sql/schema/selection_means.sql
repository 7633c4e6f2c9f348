-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  what is measured of selections
{% if model %}
-- meaning: means of the whole model, over the heads of each sequence, then over sequences: Precision, Recall, F and
--          specificity (Figure 5), distances as in selection_means; and on a log grid of n the Pearson correlation over
--          heads of mean Recall R(r_min, N) and mean ρ_0, both over sequences (Figure 6; view sink_effect)
-- rows:    query_n
-- parts:   selection_means_model JOIN distance_means_model USING (query, n, heads, sequences) LEFT JOIN (SELECT * RENAME (heads AS correlated_heads) FROM sink_effect) USING (query, n, sequences)
{% else %}
-- meaning: means of a head over sequences: Precision, Recall, F and specificity; norm of s_N, also without the sink's and
--          the last token's part, and its cosines with their value states (Figure 7); distance of s_N from the sum of the
--          weighted value states left out (arXiv 2508.17821; only its abstract and secondary accounts were available),
--          and the same for N random keys: the root mean square over all N-subsets, as the macro random_subset_distance
--          gives it; both divided by the norm of the head's output, so that heads with long and with short outputs count
--          alike
-- rows:    head_n
-- parts:   selection_means JOIN diagnostics USING (query, layer, head, n, sequences) JOIN distance_means USING (query, layer, head, n, sequences)
{% endif %}
CREATE TABLE selection_means{{ "_model" if model }} (
{{ key_columns("study", "query", "layer", "head", "n", of_model=model) }}
{% if model %}
    heads INTEGER NOT NULL, -- number of heads that attend to more than n keys [1, inf)
{% endif %}
{{ key_columns("sequences") }}
{% for metric, meaning in means.items() %}
{{ interval_columns(metric, "mean " ~ meaning, "[0, 1]", kind="DOUBLE" if model else "FLOAT") }}
{% endfor %}
{% if model %}
{{ interval_columns("relative_distance", "mean distance over the norm of the head's output; NULL if that is 0", "[0, inf)") }}
    relative_random_distance DOUBLE, -- the same for N random keys [0, inf)
    correlated_heads INTEGER, -- number of heads behind the correlation: with a ρ_0 and more than n keys; NULL off the grid [0, inf)
{{ interval_columns("correlation", "the correlation; NULL for fewer than three heads, or if Recall or ρ_0 is the same in all of them", "[-1, 1]") }}
{% else %}
    norm_s DOUBLE NOT NULL, -- mean norm of s_N, in model units [0, inf)
    norm_s_without_sink DOUBLE, -- mean norm of s_N without the sink's part; NULL if a window hides the sink [0, inf)
    norm_s_without_last DOUBLE NOT NULL, -- mean norm of s_N without the last token's part [0, inf)
    cos_sink DOUBLE, -- mean cosine between s_N and the sink's value state; NULL if the sink is hidden or its norm is always 0 [-1, 1]
    cos_last DOUBLE, -- mean cosine between s_N and the last token's value state; NULL if that norm is always 0 [-1, 1]
    relative_distance FLOAT, -- mean distance over the norm of the head's output; NULL if that is 0 in every sequence [0, inf)
    relative_random_distance FLOAT -- the same for N random keys [0, inf)
{% endif %}
)
