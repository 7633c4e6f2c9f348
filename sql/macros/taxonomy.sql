-- grain:   one row per (study, query, layer, head)
-- inputs:  head_signatures, label_heads, taxonomy_thresholds
-- meaning: the rows of head_taxonomy under other thresholds, for all studies: FROM taxonomy(last_high := 0.6);
--          thresholds that are not given, or NULL, have the defaults of taxonomy_thresholds; the kind of a head is a
--          label that it has in more than half of its sequences, else 'Other'
CREATE MACRO taxonomy(
{% for threshold in thresholds %}
    {{ threshold.name }} := NULL{{ "," if not loop.last }}
{% endfor %}
) AS TABLE
WITH thresholds AS (
    FROM taxonomy_thresholds({% for given in thresholds %}{{ given.name }} := {{ given.name }}{{ ", " if not loop.last }}{% endfor %})
),
labelled AS (FROM label_heads(head_signatures, thresholds)),
heads AS (
    SELECT
        study, query, layer, head,
        count(*)::INTEGER AS sequences,
{% for kind in kinds %}
        avg((label = '{{ kind.label }}')::INTEGER) AS {{ kind.name }}_share,
        avg({{ kind.name }}_score) AS {{ kind.name }}_score,
{% endfor %}
        avg((label = '{{ other }}')::INTEGER) AS other_share,
{% for column in of_signature %}
        avg({{ column }}) AS {{ column }},
{% endfor %}
        avg(effective_contributors) AS effective_contributors,
        avg(top_is_other) AS top_is_other,
        CASE
{% for kind in kinds %}
            WHEN {{ kind.name }}_share > 0.5 THEN '{{ kind.label }}'
{% endfor %}
            ELSE '{{ other }}'
        END AS label
    FROM labelled
    GROUP BY study, query, layer, head
),
ranked AS (
    SELECT *, greatest({% for kind in kinds %}{{ kind.name }}_score{{ ", " if not loop.last }}{% endfor %}) AS highest
    FROM heads
)
SELECT
    * EXCLUDE (highest, top_is_other),
    CASE label{% for kind in kinds %} WHEN '{{ kind.label }}' THEN {{ kind.name }}_share{% endfor %} ELSE other_share END AS agreement,
    CASE highest{% for kind in kinds %} WHEN {{ kind.name }}_score THEN '{{ kind.label }}'{% endfor %} END AS nearest,
    CASE label
{% for kind in kinds %}
        WHEN '{{ kind.label }}' THEN {{ kind.name }}_score - greatest(
            0{% for other_kind in kinds if other_kind.name != kind.name %}, coalesce({{ other_kind.name }}_score, 0){% endfor %}
        )
{% endfor %}
        ELSE -highest
    END AS margin,
    label = '{{ other }}' AND coalesce(effective_contributors < 2 AND top_is_other > 0.5, false) AS single_key
FROM ranked
