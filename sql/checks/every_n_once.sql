-- grain:   one row per (relation, sequence, query, layer, head, kappa) whose n do not run from 1 to n_keys - 1 once
-- inputs:  selection_counts, upper_bounds
-- meaning: no selection is missing or duplicated, and none of its bounds; kappa is NULL for selections (rows land in the
--          order of n, and rowid - n is the same for all exactly if their n follow one another)
WITH counted AS (
{% for relation, kappa in (("selection_counts", "NULL"), ("upper_bounds", "kappa")) %}
    SELECT
        '{{ relation }}' AS relation,
        sequence, query, layer, head,
        {{ kappa }} AS kappa,
        count(*) AS actual,
        max(rowid - n) - min(rowid - n) AS displaced,
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
WHERE actual <> expected OR displaced <> 0 OR first_n <> 1 OR last_n <> expected
