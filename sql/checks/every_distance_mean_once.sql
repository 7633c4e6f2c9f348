-- grain:   one row per (query, layer, head) whose distances do not run from n = 1 to n_keys - 1, or are impossible
-- inputs:  distance_means, distance_means_model, attention_rows
-- meaning: every head with two keys has its distances at every n, finite and not negative, with errors if there are
--          several sequences; the same for the model, whose layer and head are NULL, at every n at which a head has an
--          output
WITH reach AS (
    SELECT query, layer, head, max(n_keys) - 1 AS expected
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
    HAVING max(n_keys) > 1
),
found AS (
    SELECT
        query,
        layer,
        head,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n,
        bool_and(
            isfinite(distance)
            AND isfinite(random_distance)
            AND least(distance, random_distance) >= 0
            AND coalesce(isfinite(relative_distance) AND least(relative_distance, relative_random_distance) >= 0, true)
            AND (distance_se IS NULL) = (sequences = 1)
            AND coalesce(distance_se >= 0, true)
            AND coalesce(relative_distance_se >= 0, true)
        ) AS possible
    FROM distance_means
    WHERE study = $study
    GROUP BY query, layer, head
)
SELECT query, layer, head, found, expected, possible
FROM found
FULL JOIN reach USING (query, layer, head)
WHERE found IS DISTINCT FROM expected OR several <> found OR first_n <> 1 OR last_n <> expected OR NOT possible
UNION ALL
SELECT query, NULL, NULL, count(*), max(n), bool_and(coalesce(relative_distance >= 0 AND heads > 0, false))
FROM distance_means_model
WHERE study = $study
GROUP BY query
HAVING
    count(*) <> max(n)
    OR bit_count(bitstring_agg(n)) <> count(*)
    OR NOT bool_and(coalesce(isfinite(relative_distance) AND relative_distance >= 0 AND heads > 0, false))
