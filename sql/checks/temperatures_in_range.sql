-- grain:   one row per (query, layer, head, temperature) with selections that no temperature can give
-- inputs:  temperature_means, attention_rows
-- meaning: means of shares lie between 0 and 1, Precision at its floor n / n_keys or above, distances are finite and
--          not negative; every temperature has the same N, up to n_keys - 1, and every head with two keys the same
--          number of temperatures
WITH keys AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
    HAVING max(n_keys) > 1
),
selections AS (
    SELECT
        query,
        layer,
        head,
        temperature,
        count(*) AS actual,
        count(DISTINCT n) AS several,
        list(n ORDER BY n) AS sizes,
        max(n) AS last_n,
        min(sequences) = max(sequences) AND bool_and(
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
compared AS (
    SELECT
        *,
        max(sizes) OVER (PARTITION BY query, layer, head) AS sizes_of_another,
        count(*) OVER (PARTITION BY query, layer, head) AS temperatures
    FROM selections
)
SELECT query, layer, head, temperature, actual, possible, temperatures
FROM keys
LEFT JOIN compared USING (query, layer, head)
WHERE
    NOT coalesce(possible AND several = actual AND sizes = sizes_of_another AND last_n = n_keys - 1, false)
    OR temperatures < (SELECT max(temperatures) FROM compared)
