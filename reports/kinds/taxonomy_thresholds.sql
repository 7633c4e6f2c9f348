-- grain:   one row per threshold
-- inputs:  taxonomy_thresholds, taxonomy_sensitivity; $study, $query
-- meaning: what each threshold of the taxonomy means, why its default is what it is, and how many of the heads would
--          have another label if this threshold only were 10 % lower (changed_below) or higher (changed_above),
--          and the least and largest share of sequences and heads that would meet no rule if it were changed by 10 %,
--          halved or doubled
WITH stated AS (UNPIVOT (FROM taxonomy_thresholds()) ON * INTO NAME threshold VALUE value),
moved AS (
    SELECT
        threshold,
        any_value(changed) FILTER (WHERE factor = 0.9) AS changed_below,
        any_value(changed) FILTER (WHERE factor = 1.1) AS changed_above,
        any_value(heads) AS heads,
        min(other_share) AS other_least,
        max(other_share) AS other_most
    FROM taxonomy_sensitivity
    WHERE study = $study AND query = $query
    GROUP BY threshold
)
SELECT threshold, meaning, reason, value, changed_below, changed_above, heads, other_least, other_most
FROM (
    VALUES
{% for threshold in thresholds %}
        (
            {{ loop.index }},
            '{{ threshold.name }}',
            '{{ threshold.meaning | replace("'", "''") }}',
            '{{ threshold.reason | replace("'", "''") }}'
        ){{ "," if not loop.last }}
{% endfor %}
) AS explained (place, threshold, meaning, reason)
JOIN stated USING (threshold)
LEFT JOIN moved USING (threshold)
ORDER BY place
