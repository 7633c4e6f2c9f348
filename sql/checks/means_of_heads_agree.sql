-- grain:   one row per (relation, query, layer, head, n) whose means are not those of the selections
-- inputs:  diagnostics, distance_means, selection_counts, attention_rows, random_subset_distance
-- meaning: at every power of two, the geometry of s_N and the distances of a head are means over sequences of the
--          selections (up to rounding)
{% set geometry = ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last") %}
{% set distances = ("relative_distance", "relative_random_distance") %}
WITH selections AS (
    SELECT
        query,
        layer,
        head,
        n,
        {{ geometry | join(", ") }},
        distance_rest::DOUBLE / nullif(norm_output, 0) AS relative_distance,
        random_subset_distance(norm_output, norm_contributions, n, n_keys) / nullif(norm_output, 0)
            AS relative_random_distance
    FROM selection_counts
    JOIN (SELECT sequence, query, layer, head, norm_output, norm_contributions FROM attention_rows WHERE study = $study)
        USING (sequence, query, layer, head)
    WHERE study = $study AND n & (n - 1) = 0
),
expected AS (
    SELECT
        query,
        layer,
        head,
        n,
{% for name in geometry + distances %}
        avg({{ name }}::DOUBLE) AS {{ name }}{{ "," if not loop.last }}
{% endfor %}
    FROM selections
    GROUP BY query, layer, head, n
)
{% for relation, names in (("diagnostics", geometry), ("distance_means", distances)) %}
SELECT '{{ relation }}' AS relation, query, layer, head, n
FROM expected
LEFT JOIN (FROM {{ relation }} WHERE study = $study AND n & (n - 1) = 0) AS means USING (query, layer, head, n)
WHERE
    means.n IS NULL
{% for name in names %}
    OR NOT coalesce(
        abs(means.{{ name }} - expected.{{ name }}) <= 1e-6 * abs(expected.{{ name }}) + 1e-30,
        means.{{ name }} IS NULL AND expected.{{ name }} IS NULL
    )
{% endfor %}
{{ "UNION ALL" if not loop.last }}
{% endfor %}
