-- grain:   one row per (study, query, layer, head)
-- inputs:  head_signatures, signature_means, label_heads, taxonomy_thresholds
-- meaning: the rows of head_taxonomy under other thresholds, for all studies: FROM taxonomy(last_high := 0.6), with the
--          rows of head_conditions in the list conditions; thresholds that are not given, or NULL, have the defaults of
--          taxonomy_thresholds
CREATE MACRO taxonomy(
{% for threshold in thresholds %}
    {{ threshold.name }} := NULL{{ "," if not loop.last }}
{% endfor %}
) AS TABLE
WITH thresholds AS (
    FROM taxonomy_thresholds(
{% for threshold in thresholds %}
        {{ threshold.name }} := {{ threshold.name }}{{ "," if not loop.last }}
{% endfor %}
    )
),
means AS (
    FROM signature_means(head_signatures)
),
labelled AS (
    FROM label_heads(means, thresholds)
),
agreeing AS (
    SELECT study, query, layer, head, label, count(*) AS agreeing
    FROM label_heads(head_signatures, thresholds)
    GROUP BY study, query, layer, head, label
)
SELECT
    study,
    query,
    layer,
    head,
    label,
    nearest,
    single_key,
    margin,
    coalesce(agreeing, 0) / sequences AS agreement,
    sequences,
{% for kind in kinds %}
    {{ kind.name }}_score,
{% endfor %}
    sink_share,
    last_share,
    rest_share,
    cos_sink_max,
    cos_sink_level,
    cos_sink_change,
    cos_last_level,
    cos_last_change,
    cos_last_p05,
    effective_contributors,
    conditions
FROM labelled
LEFT JOIN agreeing USING (study, query, layer, head, label)
