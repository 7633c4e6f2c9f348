-- grain:   one row per (query, layer, head) with a label that its sequences contradict
-- inputs:  head_taxonomy, kinds_by_sequence, kinds
-- meaning: the label of a head is that of more than half of its sequences or 'Other'; shares are those of the sequences
--          and agreement that of the label; the nearest kind has the highest mean score; shares of contributions sum to 1
WITH labelled AS (
    SELECT
        query,
        layer,
        head,
        histogram(label) AS counts,
        CASE WHEN 2 * counts[mode(label)] > count(*) THEN mode(label) ELSE '{{ other }}' END AS label_of_most
    FROM kinds_by_sequence
    WHERE study = $study
    GROUP BY query, layer, head
)
SELECT query, layer, head, label, margin, agreement
FROM (
    SELECT *, [{% for kind in kinds %}{{ kind.name }}_score{{ ", " if not loop.last }}{% endfor %}] AS scores
    FROM head_taxonomy
)
LEFT JOIN labelled USING (query, layer, head)
WHERE
    study = $study
    AND NOT coalesce(
        label = label_of_most
        AND agreement = coalesce(counts[label], 0) / sequences
        AND abs({% for kind in kinds %}{{ kind.name }}_share + {% endfor %}other_share - 1) <= 1e-9
        AND isfinite(coalesce(list_sum(scores), 0))
        AND nearest IS NOT DISTINCT FROM CASE WHEN list_max(scores) IS NOT NULL THEN (
            SELECT list(label ORDER BY place) FROM kinds()
        )[list_position(scores, list_max(scores))] END
        AND (label <> '{{ other }}' OR margin IS NOT DISTINCT FROM -list_max(scores))
        AND NOT (single_key AND (label <> '{{ other }}' OR NOT effective_contributors < 2))
        AND sequences > 0
        AND coalesce(abs(coalesce(sink_share, 0) + last_share + rest_share - 1) <= 1e-9, true),
        false
    )
