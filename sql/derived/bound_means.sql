-- inputs:  margins, upper_bounds, selection_counts, unit_of, miss, f_score
-- meaning: bounds of each selection, then their means over sequences; lower and upper bounds separately, so that no two
--          tables of the size of the study are joined; the printed ones for every κ and in the scale of the upper
--          bounds; sorted, so that the rows of one head are contiguous
WITH settings AS (
    SELECT DISTINCT kappa, scale
    FROM upper_bounds
    WHERE study = $study
),
scaled AS (
    SELECT *, unit_of(scale, value_scale) AS unit
    FROM margins, settings
    WHERE study = $study
),
missed AS (
    SELECT
        query,
        layer,
        head,
        n,
        kappa,
        margin / unit AS margin,
        miss(n, n_keys, margin / unit, sink_margin / unit, head_dim, kappa) AS missed
    FROM scaled
),
printed_lower AS (
    SELECT
        query,
        layer,
        head,
        n,
        kappa,
        avg((margin > 0)::INTEGER) AS premise_share,
        avg(margin) AS margin,
        avg(1 / (1 + missed)) AS precision_lower,
        avg(greatest(1 - missed, 0)) FILTER (WHERE missed IS NOT NULL) AS recall_lower,
        avg(f_score(1 / (1 + missed))) AS f_r_max_lower,
        avg(f_score(greatest(1 - missed, 0))) FILTER (WHERE missed IS NOT NULL) AS f_r_min_lower
    FROM missed
    GROUP BY query, layer, head, n, kappa
),
printed_upper AS (
    SELECT
        query,
        layer,
        head,
        n,
        kappa,
        avg(precision_upper::DOUBLE) AS precision_upper,
        avg(recall_upper::DOUBLE) AS recall_upper,
        avg(f_score(precision_upper)) AS f_r_max_upper,
        avg(f_score(recall_upper)) AS f_r_min_upper
    FROM upper_bounds
    WHERE study = $study
    GROUP BY query, layer, head, n, kappa
),
scale_free AS (
    SELECT
        query,
        layer,
        head,
        n,
        avg(precision_lower_scale_free::DOUBLE) AS precision_lower,
        avg(recall_lower_scale_free::DOUBLE) AS recall_lower,
        -- F is concave in P, which is at least n / n_keys, so the chord from there to 1 lies below it; and F is at least R
        avg(1 - (1 - precision_lower_scale_free::DOUBLE) * n_keys / (n_keys + n)) AS f_r_max_lower,
        avg(recall_lower_scale_free::DOUBLE) AS f_r_min_lower
    FROM selection_counts
    WHERE study = $study
    GROUP BY query, layer, head, n
)
SELECT $study AS study, 'printed' AS family, *
FROM printed_lower
JOIN printed_upper USING (query, layer, head, n, kappa)
JOIN settings USING (kappa)
UNION ALL BY NAME
SELECT $study AS study, 'scale_free' AS family, *
FROM scale_free
ORDER BY query, layer, head, family, kappa, n
