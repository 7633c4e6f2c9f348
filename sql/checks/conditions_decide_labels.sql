-- grain:   one row per (query, layer, head) whose conditions do not each exist once, or contradict its label
-- inputs:  head_conditions, head_taxonomy
-- meaning: every head has every condition once, met exactly if its value satisfies the comparison with its threshold;
--          the rule of its label is met, or none if that is 'Other'
WITH conditions AS (
    SELECT
        *,
        CASE direction WHEN '>=' THEN value >= threshold WHEN '<=' THEN value <= threshold ELSE value > threshold END AS lies
    FROM head_conditions
    WHERE study = $study
),
ways AS (
    SELECT query, layer, head, kind, way, bool_and(met) AS met
    FROM conditions
    GROUP BY query, layer, head, kind, way
),
rules AS (
    SELECT
        query,
        layer,
        head,
        kind,
        bool_and(met) FILTER (WHERE way IS NULL) AND coalesce(bool_or(met) FILTER (WHERE way IS NOT NULL), true) AS met
    FROM ways
    GROUP BY query, layer, head, kind
),
judged AS (
    SELECT query, layer, head, list(kind) FILTER (WHERE met) AS rules_met
    FROM rules
    GROUP BY query, layer, head
),
counted AS (
    SELECT
        query,
        layer,
        head,
        count(*) AS found,
        count(DISTINCT (kind, condition)) AS several,
        bool_and(met = coalesce(lies, false)) AS consistent
    FROM conditions
    GROUP BY query, layer, head
)
SELECT query, layer, head, found, label, rules_met
FROM (SELECT query, layer, head, label FROM head_taxonomy WHERE study = $study)
FULL JOIN judged USING (query, layer, head)
FULL JOIN counted USING (query, layer, head)
WHERE
    found IS DISTINCT FROM {{ conditions | length }}
    OR several <> found
    OR NOT consistent
    OR label IS NULL
    OR CASE label
        WHEN '{{ other }}' THEN rules_met IS NOT NULL
        ELSE NOT coalesce(list_contains(rules_met, label), false)
    END
