-- grain:   one row per (sequence, query, layer, head) whose conditions do not each exist once, or contradict its label
-- inputs:  kinds_by_sequence
-- meaning: every head has every condition once in every sequence, met exactly if its value satisfies the comparison
--          with its threshold; the rule of its label is met, or none if that is 'Other'
WITH conditions AS (
    SELECT sequence, query, layer, head, label, unnest(conditions, recursive := true)
    FROM kinds_by_sequence
    WHERE study = $study
),
rules AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        any_value(label) AS label,
        kind,
        count(*) AS actual,
        count(DISTINCT condition) AS several,
        bool_and(met) FILTER (WHERE way IS NULL) AND coalesce(
            bool_or(all_of_way) FILTER (WHERE way IS NOT NULL), true
        ) AS is_met,
        bool_and(
            met = coalesce(
                CASE direction WHEN '>=' THEN value >= threshold WHEN '<=' THEN value <= threshold ELSE value > threshold END,
                false
            )
        ) AS consistent
    FROM (
        SELECT *, bool_and(met) OVER (PARTITION BY sequence, query, layer, head, kind, way) AS all_of_way
        FROM conditions
    )
    GROUP BY sequence, query, layer, head, kind
)
SELECT sequence, query, layer, head, any_value(label) AS label, list(kind) FILTER (WHERE is_met) AS rules_met
FROM rules
GROUP BY sequence, query, layer, head
HAVING
    sum(actual) <> {{ conditions | length }}
    OR sum(several) <> sum(actual)
    OR NOT bool_and(consistent)
    OR CASE any_value(label)
        WHEN '{{ other }}' THEN rules_met IS NOT NULL
        ELSE NOT coalesce(list_contains(rules_met, any_value(label)), false)
    END
