-- grain:   one row per (relation, query, layer, head, family, kappa) whose n do not run from 1 to n_keys - 1, each once
-- inputs:  selection_means, selection_means_model, bound_means, attention_rows, upper_bounds
-- meaning: every head with two keys has its means at every n, and bounds at every n for the scale-free family and for
--          every κ of the printed one; the model has its means at every n that a head has; layer and head are NULL for
--          the model
WITH reach AS (
    SELECT query, layer, head, max(n_keys) - 1 AS expected
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
    HAVING max(n_keys) > 1
),
families (family, kappa) AS (
    SELECT 'scale_free', NULL
    UNION ALL
    SELECT DISTINCT 'printed', kappa
    FROM upper_bounds
    WHERE study = $study
),
wanted AS (
    SELECT 'selection_means' AS relation, query, layer, head, NULL AS family, NULL AS kappa, expected
    FROM reach
    UNION ALL
    SELECT 'selection_means_model', query, NULL, NULL, NULL, NULL, max(expected)
    FROM reach
    GROUP BY query
    UNION ALL
    SELECT 'bound_means', query, layer, head, family, kappa, expected
    FROM reach, families
),
found AS (
    SELECT
        'selection_means' AS relation,
        query,
        layer,
        head,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n
    FROM selection_means
    WHERE study = $study
    GROUP BY query, layer, head
    UNION ALL BY NAME
    SELECT
        'selection_means_model' AS relation,
        query,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n
    FROM selection_means_model
    WHERE study = $study
    GROUP BY query
    UNION ALL BY NAME
    SELECT
        'bound_means' AS relation,
        query,
        layer,
        head,
        family,
        kappa,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n
    FROM bound_means
    WHERE study = $study
    GROUP BY query, layer, head, family, kappa
)
SELECT
    coalesce(found.relation, wanted.relation) AS relation,
    coalesce(found.query, wanted.query) AS query,
    coalesce(found.layer, wanted.layer) AS layer,
    coalesce(found.head, wanted.head) AS head,
    coalesce(found.family, wanted.family) AS family,
    coalesce(found.kappa, wanted.kappa) AS kappa,
    found,
    expected
FROM found
FULL JOIN wanted
    ON found.relation = wanted.relation
    AND found.query = wanted.query
    AND found.layer IS NOT DISTINCT FROM wanted.layer
    AND found.head IS NOT DISTINCT FROM wanted.head
    AND found.family IS NOT DISTINCT FROM wanted.family
    AND found.kappa IS NOT DISTINCT FROM wanted.kappa
WHERE found IS DISTINCT FROM expected OR several <> found OR first_n <> 1 OR last_n <> expected
