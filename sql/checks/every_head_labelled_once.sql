-- grain:   one row per (query, layer, head) without exactly one label, or with one that its scores contradict
-- inputs:  head_taxonomy, heads, attention_rows, kinds
-- meaning: at every query every head has one label, of a kind with the highest score, not below 0, or 'Other' without a
--          score above 0; the nearest kind has the highest score (ties in the order of kinds()), the margin is the
--          distance to the next score, that of 'Other' being 0; shares and agreement lie between 0 and 1
WITH wanted AS (
    SELECT query, layer, head
    FROM heads
    CROSS JOIN (SELECT DISTINCT query FROM attention_rows WHERE study = $study)
    WHERE study = $study
),
scored AS (
    SELECT
        *,
        [{% for kind in kinds %}{{ kind.name }}_score{{ ", " if not loop.last }}{% endfor %}] AS scores,
        list_reverse_sort(list_filter(scores, lambda score: score IS NOT NULL)) AS ranked,
        CASE
            WHEN ranked[1] IS NOT NULL THEN (SELECT list(label ORDER BY place) FROM kinds())[list_position(scores, ranked[1])]
        END AS by_scores
    FROM head_taxonomy
    WHERE study = $study
),
found AS (
    SELECT
        *,
        coalesce(
            nearest IS NOT DISTINCT FROM by_scores
            AND isfinite(coalesce(list_sum(scores), 0))
            AND CASE label
                WHEN '{{ other }}' THEN coalesce(ranked[1] <= 0, true) AND margin IS NOT DISTINCT FROM -ranked[1]
                ELSE
                    label = nearest
                    AND ranked[1] >= 0
                    AND margin = ranked[1] - greatest(ranked[2], 0)
                    AND NOT single_key
            END
            AND NOT (single_key AND NOT effective_contributors < 2)
            AND agreement BETWEEN 0 AND 1
            AND sequences > 0
            AND coalesce(least(sink_share, last_share, rest_share) >= 0, true)
            AND coalesce(abs(coalesce(sink_share, 0) + last_share + rest_share - 1) <= 1e-9, true),
            false
        ) AS possible
    FROM scored
)
SELECT
    query,
    layer,
    head,
    count(found.study) AS found,
    any_value(label) AS label,
    any_value(scores) AS scores,
    any_value(margin) AS margin,
    any_value(agreement) AS agreement
FROM found
FULL JOIN wanted USING (query, layer, head)
GROUP BY query, layer, head
HAVING count(found.study) <> 1 OR count(wanted.query) <> 1 OR NOT bool_and(possible)
