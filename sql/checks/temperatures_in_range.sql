-- grain:   one row per (query, layer, head, temperature) with selections or weights that no temperature can give
-- inputs:  temperature_means, temperature_concentration, attention_rows
-- meaning: means of shares lie between 0 and 1, Precision at its floor n / n_keys or above, distances are finite and
--          not negative; weights are spread more widely at higher temperatures (up to rounding); every temperature has
--          the same N and both tables the same heads, sequences and temperatures
WITH keys AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
),
selections AS (
    SELECT
        query,
        layer,
        head,
        temperature,
        any_value(n_keys) AS n_keys,
        min(sequences) AS sequences,
        count(*) AS found,
        count(DISTINCT n) AS several,
        list(n ORDER BY n) AS sizes,
        max(n) AS last_n,
        bool_and(
            precision >= n / n_keys - 1e-9
            AND least(recall, specificity, auc, distance, random_distance) >= 0
            AND greatest(precision, recall, specificity, auc) <= 1 + 1e-9
            AND isfinite(distance + random_distance)
        ) AS possible
    FROM temperature_means
    JOIN keys USING (query, layer, head)
    WHERE study = $study
    GROUP BY query, layer, head, temperature
),
counted AS (
    SELECT *, max(sizes) OVER (PARTITION BY query, layer, head) AS sizes_of_another
    FROM selections
),
spreads AS (
    SELECT
        *,
        effective_keys >= 1 - 1e-6
        AND effective_keys <= n_keys * (1 + 1e-6)
        AND top_weight BETWEEN 0 AND 1 + 1e-6
        AND n_50 <= n_90
        AND n_90 <= n_99
        AND n_99 <= n_keys
        AND underflowed BETWEEN 0 AND n_keys - 1
        AND effective_keys >= (1 - 1e-5) * coalesce(lag(effective_keys) OVER colder, 0)
        AND top_weight <= (1 + 1e-5) * coalesce(lag(top_weight) OVER colder, 1) AS possible
    FROM temperature_concentration
    JOIN keys USING (query, layer, head)
    WHERE study = $study
    WINDOW colder AS (PARTITION BY query, layer, head ORDER BY temperature)
)
SELECT query, layer, head, temperature, found, counted.possible, spreads.possible
FROM spreads
FULL JOIN counted USING (query, layer, head, temperature)
WHERE
    NOT coalesce(spreads.possible, false)
    OR NOT coalesce(counted.possible, spreads.n_keys = 1)
    OR several <> found
    OR sizes <> sizes_of_another
    OR last_n <> spreads.n_keys - 1
    OR counted.sequences <> spreads.sequences
