-- grain:   one row per (query, layer, head) without exactly one label, or with one that its sequences contradict
-- inputs:  head_taxonomy, kinds_by_sequence, heads, attention_rows, kinds
-- meaning: at every query every head has one label, that of more than half of its sequences or 'Other'; shares are
--          those of the sequences and agreement that of the label; the nearest kind has the highest mean score; shares
--          of contributions sum to 1
WITH expected AS (
    SELECT query, layer, head
    FROM heads
    CROSS JOIN (SELECT DISTINCT query FROM attention_rows WHERE study = $study)
    WHERE study = $study
),
labels AS (
    SELECT query, layer, head, label, count(*) AS sequences_with
    FROM kinds_by_sequence
    WHERE study = $study
    GROUP BY query, layer, head, label
),
sequences AS (
    SELECT query, layer, head, sum(sequences_with) AS counted, arg_max(label, sequences_with) AS commonest
    FROM labels
    GROUP BY query, layer, head
    HAVING 2 * max(sequences_with) > sum(sequences_with)
),
agreeing AS (
    SELECT query, layer, head, label, sequences_with
    FROM labels
),
actual AS (
    SELECT
        taxonomy.*,
        [{% for kind in kinds %}{{ kind.name }}_score{{ ", " if not loop.last }}{% endfor %}] AS scores,
        coalesce(
            label = coalesce(commonest, '{{ other }}')
            AND agreement = coalesce(sequences_with, 0) / sequences
            AND abs({% for kind in kinds %}{{ kind.name }}_share + {% endfor %}other_share - 1) <= 1e-9
            AND isfinite(coalesce(list_sum(scores), 0))
            AND nearest IS NOT DISTINCT FROM CASE WHEN list_max(scores) IS NOT NULL THEN (
                SELECT list(label ORDER BY place) FROM kinds()
            )[list_position(scores, list_max(scores))] END
            AND (label <> '{{ other }}' OR margin IS NOT DISTINCT FROM -list_max(scores))
            AND NOT (single_key AND (label <> '{{ other }}' OR NOT effective_contributors < 2))
            AND sequences > 0
            AND coalesce(least(sink_share, last_share, rest_share) >= 0, true)
            AND coalesce(abs(coalesce(sink_share, 0) + last_share + rest_share - 1) <= 1e-9, true),
            false
        ) AS possible
    FROM (SELECT * FROM head_taxonomy WHERE study = $study) AS taxonomy
    LEFT JOIN sequences USING (query, layer, head)
    LEFT JOIN agreeing USING (query, layer, head, label)
)
SELECT
    query,
    layer,
    head,
    count(actual.study) AS rows,
    any_value(label) AS label,
    any_value(scores) AS scores,
    any_value(margin) AS margin,
    any_value(agreement) AS agreement
FROM actual
FULL JOIN expected USING (query, layer, head)
GROUP BY query, layer, head
HAVING count(actual.study) <> 1 OR count(expected.query) <> 1 OR NOT bool_and(possible)
