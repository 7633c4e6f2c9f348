-- grain:   one row per (sequence, query, layer, head) whose cosines take another course than those of the selections
-- inputs:  head_levels, heads, selection_counts, weighted_level, weighted_slope
-- meaning: in the last layer, largest cosine with the sink, level and change over ln N of both cosines are those of the
--          straight line through the cosines of the selections, with weights of 1/N (up to rounding); ln N is centred at
--          the middle of its range, which is close to its weighted median; the sink is selected at the N that have a_0
WITH points AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        ln(n_keys - 1) AS reach,
        ln(n) - reach / 2 AS x,
        1 / n AS weight,
        a_0,
        cos_sink::DOUBLE AS cos_sink,
        cos_last::DOUBLE AS cos_last
    FROM selection_counts
    WHERE study = $study AND layer = (SELECT max(layer) FROM heads WHERE study = $study)
),
expected AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        max(cos_sink) FILTER (WHERE a_0 IS NOT NULL) AS cos_sink_max,
        weighted_level(cos_sink, weight) AS cos_sink_level,
        weighted_slope(cos_sink, x, weight) * any_value(reach) AS cos_sink_change,
        weighted_level(cos_last, weight) AS cos_last_level,
        weighted_slope(cos_last, x, weight) * any_value(reach) AS cos_last_change
    FROM points
    GROUP BY sequence, query, layer, head
)
SELECT sequence, query, layer, head
FROM expected
LEFT JOIN (FROM head_levels WHERE study = $study) AS levels USING (sequence, query, layer, head)
WHERE
    levels.head IS NULL
{% for name in course %}
    OR NOT coalesce(
        abs(levels.{{ name }} - expected.{{ name }}) <= 1e-6, levels.{{ name }} IS NULL AND expected.{{ name }} IS NULL
    )
{% endfor %}
