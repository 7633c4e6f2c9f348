-- inputs:  head_signatures, label_heads, taxonomy_thresholds
-- meaning: labels of every head with each threshold changed
WITH stated AS (UNPIVOT (FROM taxonomy_thresholds()) ON * INTO NAME threshold VALUE stated),
moved AS (
    SELECT threshold, factor, stated * factor AS value
    FROM stated, (VALUES (0.5::DOUBLE), (0.9::DOUBLE), (1.1::DOUBLE), (2::DOUBLE)) AS factors (factor)
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
signatures AS (FROM head_signatures WHERE study = $study),
relabelled AS (
    SELECT study, query, layer, head, threshold, factor, value, label
    FROM label_heads(signatures, thresholds)
)
SELECT
    study, query, layer, head, threshold, factor,
    any_value(value) AS value,
    avg((label = '{{ other }}')::INTEGER) AS other_share,
    CASE
{% for kind in kinds %}
        WHEN avg((label = '{{ kind.label }}')::INTEGER) > 0.5 THEN '{{ kind.label }}'
{% endfor %}
        ELSE '{{ other }}'
    END AS label
FROM relabelled
GROUP BY study, query, layer, head, threshold, factor
ORDER BY query, layer, head, threshold, factor
