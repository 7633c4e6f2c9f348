-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  margins, unit_of, miss, f_score
-- meaning: the paper's lower bounds (eq. 12, 14, 16, 17) of every selection for any κ above 0 and either scale, 'unit'
--          or 'raw': FROM lower_bounds(0.5, 'unit'); columns after n_keys: delta and margin (Δ and Δ/B in that scale),
--          precision_lower, recall_lower, f_r_max_lower, f_r_min_lower; NULL if only the sink is selected, all weighted
--          norms are 0, or (scale 'unit') value_scale is 0
CREATE MACRO lower_bounds(kappa, scale) AS TABLE
WITH scaled AS (
    SELECT
        *,
        unit_of(scale, value_scale) AS unit,
        CASE
            WHEN kappa > 0 AND isfinite(kappa::DOUBLE) THEN kappa::DOUBLE
            ELSE error('kappa must be a finite number above 0')
        END AS asked_kappa
    FROM margins
),
missed AS (
    SELECT *, miss(n, n_keys, margin / unit, sink_margin / unit, head_dim, asked_kappa) AS missed
    FROM scaled
),
bounded AS (
    SELECT *, 1 / (1 + missed) AS precision_lower, greatest(1 - missed, 0) AS recall_lower
    FROM missed
)
SELECT
    study, sequence, query, layer, head, n, n_keys,
    delta / (unit * unit) AS delta,
    margin / unit AS margin,
    precision_lower,
    CASE WHEN missed IS NOT NULL THEN recall_lower END AS recall_lower,
    f_score(precision_lower) AS f_r_max_lower,
    CASE WHEN missed IS NOT NULL THEN f_score(recall_lower) END AS f_r_min_lower
FROM bounded
