-- grain:   one row per row of the signatures and row of the thresholds
-- inputs:  a relation with the columns of head_signatures from n_keys on, and one with those of taxonomy_thresholds
-- meaning: label, nearest kind and scores by the rules of Section 4.2, with all columns of both inputs except
--          the thresholds, and every condition with the value and limit compared. A score is by how much the narrowest
--          condition of a rule is met, below 0 by how much the worst is missed: cosines and shares as they are, numbers
--          of keys relative to the larger of both; NULL if an input of a condition does not exist (a hidden sink, one
--          key, a vector of norm 0), which meets no condition. If several rules are met, the one with the highest score
--          gives the label, ties in the order of kinds()
CREATE MACRO label_heads(signatures, thresholds) AS TABLE
WITH shared AS (
    SELECT
        *,
        nullif(coalesce(norm_y_0, 0) + norm_y_last + norm_rest, 0) AS total_norm,
        norm_y_0 / total_norm AS sink_share,
        norm_y_last / total_norm AS last_share,
        norm_rest / total_norm AS rest_share
    FROM query_table(signatures)
),
held AS (
    SELECT
        *,
{% for _, condition in conditions %}
        CASE WHEN n_keys > 1 THEN {{ condition.value }} END AS {{ condition.name }}_value,
        {{ condition.limit }} AS {{ condition.name }}_limit,
        {{ condition.met }} AS {{ condition.name }}_met,
        {{ condition.slack }} AS {{ condition.name }}_slack{{ "," if not loop.last }}
{% endfor %}
    FROM shared, query_table(thresholds) AS stated
),
scored AS (
    SELECT
        *,
{% for kind in kinds %}
        {{ kind.score }} AS {{ kind.name }},
        CASE WHEN {{ kind.met }} THEN {{ kind.name }} END AS {{ kind.name }}_won,
{% endfor %}
        greatest({% for kind in kinds %}{{ kind.name }}_won{{ ", " if not loop.last }}{% endfor %}) AS won,
        greatest({% for kind in kinds %}{{ kind.name }}{{ ", " if not loop.last }}{% endfor %}) AS highest
    FROM held
)
SELECT
    * EXCLUDE (
        total_norm, won, highest,
        {% for kind in kinds %}{{ kind.name }}, {{ kind.name }}_won, {% endfor %}
{% for _, condition in conditions %}
        {{ condition.name }}_value, {{ condition.name }}_limit, {{ condition.name }}_met, {{ condition.name }}_slack,
{% endfor %}
        {{ thresholds | map(attribute="name") | join(", ") }}
    ),
{% for kind in kinds %}
    nullif({{ kind.name }}, '-infinity') AS {{ kind.name }}_score,
{% endfor %}
    CASE won{% for kind in kinds %} WHEN {{ kind.name }}_won THEN '{{ kind.label }}'{% endfor %} ELSE '{{ other }}' END AS label,
    CASE nullif(highest, '-infinity'){% for kind in kinds %} WHEN {{ kind.name }} THEN '{{ kind.label }}'{% endfor %} END AS nearest,
    [
{% for kind, condition in conditions %}
        {
            'kind': '{{ kind.label }}',
            'way': {{ "'" ~ condition.way ~ "'" if condition.way else "NULL::VARCHAR" }},
            'condition': '{{ condition.name }}',
            'value': {{ condition.name }}_value::DOUBLE,
            'direction': '{{ condition.direction }}',
            'threshold': {{ condition.name }}_limit::DOUBLE,
            'met': {{ condition.name }}_met
        }{{ "," if not loop.last }}
{% endfor %}
    ] AS conditions
FROM scored
