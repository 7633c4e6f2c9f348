-- grain:   one row per (layer, head, sequence, query)
-- inputs:  query_heads, head_labels; $study, $sequences, $heads
-- meaning: what every query of the first $sequences sequences selects, of at most $heads heads: those that are known to
--          look at something other than the sink first, of these the ones of largest share
WITH known AS (
    SELECT layer, head, max(share) AS share
    FROM head_labels
    WHERE study = $study AND label <> 'sink'
    GROUP BY layer, head
),
chosen AS (
    SELECT layer, head
    FROM heads
    LEFT JOIN known USING (layer, head)
    WHERE study = $study
    ORDER BY share DESC NULLS LAST, layer, head
    LIMIT $heads
)
SELECT layer, head, sequence, query, recall_level, specificity_level, effective_keys, sink_weight, error_renormalised_16
FROM query_heads
JOIN chosen USING (layer, head)
WHERE study = $study AND sequence < $sequences
ORDER BY layer, head, sequence, query
