-- grain:   one row per (query, layer, head, n, kappa) whose mean bounds are not those of the selections
-- inputs:  bound_means, selection_counts, upper_bounds, heads, value_scales, margin, sink_margin, unit_of, miss, f_score
-- meaning: at every power of two, in the last layer, mean bounds of a head are means over sequences of the bounds of the
--          selections (up to rounding); kappa is NULL for the scale-free ones
{% set chosen = "study = $study AND layer = (SELECT max(layer) FROM heads WHERE study = $study) AND n & (n - 1) = 0" %}
{% set names = (
    "premise_share", "margin", "precision_lower", "recall_lower", "f_r_max_lower", "f_r_min_lower", "precision_upper",
    "recall_upper", "f_r_max_upper", "f_r_min_upper",
) %}
WITH selections AS (
    SELECT
        * EXCLUDE study,
        margin(a_min_in, a_max_in, a_max_out, s_in, rho_out) AS of_content,
        sink_margin(a_0, a_max_in, a_max_out, s_in, rho_out) AS of_sink
    FROM selection_counts
    WHERE {{ chosen }}
),
scaled AS (
    SELECT *, unit_of(scale, value_scale) AS unit
    FROM selections
    JOIN (FROM upper_bounds WHERE {{ chosen }}) USING (sequence, query, layer, head, n)
    JOIN heads USING (study, layer, head)
    JOIN value_scales USING (study, sequence, query, layer, kv_head)
),
missed AS (
    SELECT
        *,
        of_content / unit AS margin,
        miss(n, n_keys, of_content / unit, of_sink / unit, head_dim, kappa) AS missed
    FROM scaled
),
bounds AS (
    SELECT
        query,
        layer,
        head,
        n,
        kappa,
        (margin > 0)::INTEGER AS premise_share,
        margin,
        1 / (1 + missed) AS precision_lower,
        CASE WHEN missed IS NOT NULL THEN greatest(1 - missed, 0) END AS recall_lower,
        f_score(precision_lower) AS f_r_max_lower,
        f_score(recall_lower) AS f_r_min_lower,
        precision_upper,
        recall_upper,
        f_score(precision_upper) AS f_r_max_upper,
        f_score(recall_upper) AS f_r_min_upper
    FROM missed
    UNION ALL BY NAME
    SELECT
        query,
        layer,
        head,
        n,
        precision_lower_scale_free AS precision_lower,
        recall_lower_scale_free AS recall_lower,
        -- F is concave in P, which is at least n / n_keys, so the chord from there to 1 lies below it; and F is at least R
        1 - (1 - precision_lower_scale_free) * n_keys / (n_keys + n) AS f_r_max_lower,
        recall_lower_scale_free AS f_r_min_lower
    FROM selections
),
expected AS (
    SELECT
        query,
        layer,
        head,
        n,
        kappa,
{% for name in names %}
        avg({{ name }}::DOUBLE) AS {{ name }}{{ "," if not loop.last }}
{% endfor %}
    FROM bounds
    GROUP BY query, layer, head, n, kappa
)
SELECT expected.query, expected.layer, expected.head, expected.n, expected.kappa
FROM expected
LEFT JOIN (FROM bound_means WHERE {{ chosen }}) AS means
    ON (means.query, means.layer, means.head, means.n) = (expected.query, expected.layer, expected.head, expected.n)
    AND means.kappa IS NOT DISTINCT FROM expected.kappa
WHERE
    means.n IS NULL
{% for name in names %}
    OR NOT coalesce(
        abs(means.{{ name }} - expected.{{ name }}) <= 1e-6,
        means.{{ name }} IS NULL AND expected.{{ name }} IS NULL
    )
{% endfor %}
