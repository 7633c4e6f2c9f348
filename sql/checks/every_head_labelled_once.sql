-- grain:   one row per (query, layer, head) without exactly one label, or with one that its scores contradict
-- inputs:  head_taxonomy, heads, attention_rows
-- meaning: at every query every head has the label of its highest score (ties: Retriever, Mixer, Reset), fits_rule and
--          margin by the scores, and shares and agreement between 0 and 1
WITH wanted AS (
    SELECT query, layer, head
    FROM heads
    CROSS JOIN (SELECT DISTINCT query FROM attention_rows WHERE study = $study)
    WHERE study = $study
),
found AS (
    SELECT
        *,
        list_reverse_sort([retriever_score, mixer_score, reset_score]) AS scores,
        ['Retriever', 'Mixer', 'Reset'][
            list_position([retriever_score, mixer_score, reset_score], scores[1])
        ] AS by_scores,
        coalesce(
            label = by_scores
            AND isfinite(scores[1] - scores[3])
            AND fits_rule = (scores[1] >= 0)
            AND margin = scores[1] - scores[2]
            AND agreement BETWEEN 0 AND 1
            AND sequences > 0
            AND least(sink_share, last_share, rest_share, spread) >= 0
            AND sink_share + last_share + rest_share <= 1 + 1e-9
            AND spread <= 1,
            false
        ) AS possible
    FROM head_taxonomy
    WHERE study = $study
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
