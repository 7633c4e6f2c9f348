-- grain:   one row per (study, layer, head, measure)
-- inputs:  heads, selection_means, selection_counts, elbows, head_taxonomy, concentration_means, key_budgets,
--          sink_similarity, head_ablation, weighted_level
-- meaning: every measure of a head at the last query of its study, in one column: means over sequences; for curves over
--          N, means over ln N, with weight 1/N for each N; errors, of the 16 keys of largest weight; the effects of
--          ablation, if the study has them
CREATE OR REPLACE VIEW head_measures AS
WITH last_queries AS (
    SELECT study, max(query) AS query
    FROM selection_means
    GROUP BY study
),
of_selections AS (
    SELECT study, layer, head, weighted_level(COLUMNS({{ metrics | list }}), 1 / n) AS '\0'
    FROM selection_means
    JOIN last_queries USING (study, query)
    GROUP BY study, layer, head
),
of_errors AS (
    SELECT study, layer, head, avg(COLUMNS(['error_renormalised', 'error_mean', 'weight_left_out'])::DOUBLE) AS '\0_16'
    FROM selection_counts
    JOIN last_queries USING (study, query)
    WHERE n = 16
    GROUP BY study, layer, head
),
of_elbows AS (
    SELECT study, layer, head, elbow_n::DOUBLE AS elbow
    FROM elbows
    JOIN last_queries USING (study, query)
),
of_kinds AS (
    SELECT study, layer, head, COLUMNS({{ of_kinds | list }})::DOUBLE
    FROM head_taxonomy
    JOIN last_queries USING (study, query)
),
of_concentration AS (
    SELECT study, layer, head, COLUMNS({{ concentration | map(attribute="name") | list }})::DOUBLE
    FROM concentration_means
    JOIN last_queries USING (study, query)
),
of_sinks AS (
    SELECT heads.study, heads.layer, heads.head, avg(rho_0::DOUBLE) AS rho_0
    FROM heads
    LEFT JOIN sink_similarity USING (study, layer, kv_head)
    GROUP BY heads.study, heads.layer, heads.head
),
measured AS (
{% for relation in ("of_selections", "of_errors", "of_elbows", "of_kinds", "of_concentration", "of_sinks") %}
    SELECT study, layer, head, measure, value, NULL::DOUBLE AS low, NULL::DOUBLE AS high
    FROM {{ relation }} UNPIVOT INCLUDE NULLS (value FOR measure IN (COLUMNS(* EXCLUDE (study, layer, head))))
    UNION ALL
{% endfor %}
{% for name, number in (("mass", "n_90"), ("error", "n_renormalised_10"), ("error_5", "n_renormalised_5"), ("error_1", "n_renormalised_1")) %}
    SELECT study, layer, head, '{{ name }}', {{ number }}, {{ number }}_low, {{ number }}_high
    FROM key_budgets
    JOIN last_queries USING (study, query)
    UNION ALL
{% endfor %}
    SELECT study, layer, head, 'delta_loss_' || kind, delta_loss, delta_loss_low, delta_loss_high
    FROM head_ablation
    UNION ALL
    SELECT study, layer, head, 'kl_' || kind, kl, kl_low, kl_high
    FROM head_ablation
)
SELECT
{{ key_names("study", "layer", "head") }}
    kv_head, -- KV head whose value states the query head weighs, from 0
    measure, -- name of the measure: a column of its source table, its name and _16 if at N = 16, 'elbow', 'mass', 'error', 'error_5', 'error_1' (n_90, n_renormalised_10, _5, _1 of key_budgets), 'delta_loss_KIND' or 'kl_KIND'
    value, -- value of the measure; NULL if it does not exist
    low, -- lower end of its 95 % interval, if it has one
    high, -- upper end of that interval
FROM measured
JOIN heads USING (study, layer, head)
