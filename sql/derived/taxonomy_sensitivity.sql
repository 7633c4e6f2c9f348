-- grain:   one row per (study, query, threshold, factor)
-- inputs:  head_signatures, head_taxonomy, signature_means, label_heads, taxonomy_thresholds
-- meaning: labels from means over sequences with each threshold changed by 10 % in either direction, compared with
--          those of head_taxonomy
WITH stated AS (
    UNPIVOT (FROM taxonomy_thresholds()) ON * INTO NAME threshold VALUE stated
),
moved AS (
    SELECT threshold, factor, stated * factor AS value
    FROM stated, (VALUES (0.9::DOUBLE), (1.1::DOUBLE)) AS factors (factor)
),
thresholds AS (
    SELECT *
    FROM
        moved,
        LATERAL taxonomy_thresholds(
{% for threshold in thresholds %}
            {{ threshold.name }} := CASE threshold WHEN '{{ threshold.name }}' THEN value END{{ "," if not loop.last }}
{% endfor %}
        )
),
signatures AS (
    SELECT *
    FROM head_signatures
    WHERE study = $study
),
means AS (
    FROM signature_means(signatures)
),
relabelled AS (
    FROM label_heads(means, thresholds)
)
SELECT
    study,
    query,
    threshold,
    factor,
    any_value(value) AS value,
    count(*) AS heads,
    count(*) FILTER (WHERE relabelled.label <> head_taxonomy.label) AS changed
FROM relabelled
JOIN head_taxonomy USING (study, query, layer, head)
GROUP BY study, query, threshold, factor
ORDER BY query, threshold, factor
