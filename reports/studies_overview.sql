-- grain:   one row per study of the warehouse that is not a member of a family
-- inputs:  studies, model_sizes, claims, measures, attention_by_position, selection_means_model, elbows_model,
--          head_taxonomy, family_members
-- meaning: the settings of each study, and a summary of its results at the last query: how many of the paper's claims
--          it supports, out of how many that are decided (claims_judged), how many of those supported are beyond random
--          weights (claims_beyond_twin), Precision and Recall at the largest N up to 4 (shown_n), the mean
--          attention on the sink (sinks: of each head, layer by layer; NULL if hidden), and the share of heads of each
--          kind; twin: the study of random weights; is_twin: whether it is that of another; NULL: not known
WITH judged AS (
    SELECT
        study,
        count(*) FILTER (WHERE verdict = 'supported') AS claims_supported,
        count(*) FILTER (WHERE verdict IN ('supported', 'not supported')) AS claims_judged,
        CASE WHEN count(twin_verdict) > 0 THEN count(*) FILTER (WHERE beyond_twin) END AS claims_beyond_twin
    FROM claims
    GROUP BY study
),
of_model AS (FROM elbows_model QUALIFY query = max(query) OVER (PARTITION BY study)),
separated AS (
    SELECT study, precision, recall, n AS shown_n
    FROM selection_means_model
    WHERE n <= 4
    QUALIFY row_number() OVER (PARTITION BY study ORDER BY query DESC, n DESC) = 1
),
rested AS (FROM measures WHERE measure = 'sink_weight'),
rests AS (
    SELECT study, list(mean_weight ORDER BY layer, head) AS sinks, list(layer ORDER BY layer, head) AS sink_layers
    FROM (FROM attention_by_position WHERE position = 0 QUALIFY query = max(query) OVER (PARTITION BY study))
    GROUP BY study
),
shares AS (
    SELECT
        study,
{% for kind in kinds %}
        avg((label = '{{ kind.label }}')::INTEGER) AS {{ kind.name }}_share,
{% endfor %}
        avg((label = '{{ other }}')::INTEGER) AS other_share
    FROM head_taxonomy
    GROUP BY study, query
    QUALIFY query = max(query) OVER (PARTITION BY study)
)
SELECT
    study, model, model_name, corpus_name, context_length, studies.sequences, layers, heads, attention_layers,
    all_heads, alike,
    coalesce(claims_supported, 0) AS claims_supported,
    coalesce(claims_judged, 0) AS claims_judged,
    claims_beyond_twin, elbow_n AS model_elbow_n, precision, recall, shown_n, rested.value AS sink_weight, sinks, sink_layers, twin,
    study IN (SELECT twin FROM studies WHERE twin IS NOT NULL) AS is_twin,
    shares.* EXCLUDE study
FROM studies
JOIN model_sizes USING (study)
LEFT JOIN judged USING (study)
LEFT JOIN of_model USING (study)
LEFT JOIN separated USING (study)
LEFT JOIN rested USING (study)
LEFT JOIN rests USING (study)
LEFT JOIN shares USING (study)
WHERE study NOT IN (SELECT study FROM family_members)
ORDER BY study
