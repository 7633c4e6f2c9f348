-- grain:   one row per (study, query, layer, head, n)
-- inputs:  lower_bounds, selection_means
-- meaning: mean Precision, Recall and F of every head and the mean of their lower bounds (eq. 12, 14, 16, 17) for any κ
--          above 0, in scale 'unit' or 'raw': FROM bounds_at(0.2); premise_share: share of sequences with Δ > 0;
--          _holds: whether the mean is at least the bound, up to rounding (1e-6), NULL without a bound; computed from
--          all selections that the query needs: a filter on study, layer, head or n makes it fast
CREATE MACRO bounds_at(kappa, scale := 'unit') AS TABLE
WITH bounds AS (
    SELECT
        study, query, layer, head, n,
        avg((margin > 0)::INTEGER) AS premise_share,
        avg(COLUMNS('margin|_lower'))
    FROM lower_bounds(kappa, scale)
    GROUP BY study, query, layer, head, n
)
SELECT
    study, query, layer, head, n, sequences, premise_share, margin,
{% for metric in metrics %}
    {{ metric }},
    {{ metric }}_lower,
    {{ metric }} >= {{ metric }}_lower - 1e-6 AS {{ metric }}_holds{{ "," if not loop.last }}
{% endfor %}
FROM bounds -- listed first: DuckDB pushes a filter on a shared column down to the relation that the column is taken from
JOIN selection_means USING (study, query, layer, head, n)
