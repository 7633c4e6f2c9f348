-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  margins
-- meaning: the paper's lower bounds (eq. 12, 14, 16, 17) of every selection for any κ above 0 and either scale, 'unit'
--          (norms divided by C) or 'raw': FROM lower_bounds(0.5, 'unit'); columns after n_keys: delta and margin (Δ and
--          Δ/B in that scale), precision_lower, recall_lower, f_r_max_lower, f_r_min_lower; NULL if only the sink is
--          selected, all weighted norms are 0, or (scale 'unit') value_scale is 0. Eq. 12 and 14 subtract the tail
--          exp(-κ d margin²) of both margins, where a margin below 0 counts as 0, and a sink's that does not exist not
CREATE MACRO lower_bounds(kappa, scale) AS TABLE
WITH scaled AS (
    SELECT
        *,
        CASE scale
            WHEN 'unit' THEN nullif(value_scale::DOUBLE, 0)
            WHEN 'raw' THEN 1::DOUBLE
            ELSE error('scale must be ''unit'' or ''raw'', not ' || coalesce('''' || scale || '''', 'NULL'))
        END AS unit,
        CASE
            WHEN kappa > 0 AND isfinite(kappa::DOUBLE) THEN -kappa::DOUBLE * head_dim
            ELSE error('kappa must be a finite number above 0')
        END AS slope
    FROM margins
),
bounded AS (
    SELECT
        *,
        (margin + abs(margin)) / 2 / unit AS above,
        (sink_margin + abs(sink_margin)) / 2 / unit AS sink_above,
        (n_keys - n) * (exp(slope * above * above) + coalesce(exp(slope * sink_above * sink_above), 0) / n) AS missed,
        1 / (1 + missed) AS precision_lower,
        CASE WHEN missed IS NOT NULL THEN greatest(1 - missed, 0) END AS recall_lower
    FROM scaled
)
SELECT
    study, sequence, query, layer, head, n, n_keys,
    delta / (unit * unit) AS delta,
    margin / unit AS margin,
    precision_lower,
    recall_lower,
    2 * precision_lower / (1 + precision_lower) AS f_r_max_lower,
    2 * recall_lower / (1 + recall_lower) AS f_r_min_lower
FROM bounded
