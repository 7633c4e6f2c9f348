-- grain:   one row per (relation, sequence, query, layer, head, kappa) whose n do not run from 1 to n_keys - 1 once
-- inputs:  selection_counts, upper_bounds
-- meaning: no selection is missing or duplicated, and none of its bounds (a set of bits counts distinct n five times
--          faster than count(DISTINCT)); kappa is NULL for selections
WITH counted AS (
{% for relation, kappa in (("selection_counts", "NULL"), ("upper_bounds", "kappa")) %}
    SELECT
        '{{ relation }}' AS relation,
        sequence,
        query,
        layer,
        head,
        {{ kappa }} AS kappa,
        count(*) AS actual,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n,
        {{ "any_value(n_keys) - 1" if loop.first else "max(n)" }} AS expected
    FROM {{ relation }}
    WHERE study = $study
    GROUP BY ALL
{{ "    UNION ALL" if not loop.last }}
{% endfor %}
)
SELECT relation, sequence, query, layer, head, kappa, actual, expected
FROM counted
WHERE actual <> expected OR several <> actual OR first_n <> 1 OR last_n <> expected
