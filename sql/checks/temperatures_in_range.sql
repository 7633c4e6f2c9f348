-- grain:   one row per (query, layer, head, temperature) with selections that no temperature can give
-- inputs:  temperature_means, attention_rows
-- meaning: Precision lies at its floor n / n_keys or above; every temperature has the same N, up to n_keys - 1, and every
--          head with two keys the same number of temperatures
WITH keys AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
    HAVING max(n_keys) > 1
),
selections AS (
    SELECT
        query, layer, head, temperature,
        list(n ORDER BY n) AS sizes,
        max(n) AS last_n,
        min(sequences) = max(sequences) AND bool_and(precision >= n / n_keys - 1e-9) AS possible
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
SELECT query, layer, head, temperature, last_n, possible, temperatures
FROM keys
LEFT JOIN compared USING (query, layer, head)
WHERE
    NOT coalesce(possible AND sizes = sizes_of_another AND last_n = n_keys - 1, false)
    OR temperatures < (SELECT max(temperatures) FROM compared)
