-- grain:   one row per (label, layer, head)
-- inputs:  head_labels, head_pattern_means, top_keys, tokens; $study, $sequences
-- meaning: what heads are known to look at: for each label its heads, and the sequence and query, of the
--          first $sequences sequences, at which its keys hold most of the head's weight: held, the share held by those among
--          the 16 keys of largest weight; text: where the share is that of head_labels; of 'diffuse', the weight that the largest key leaves to the others; heads: number of
--          heads with the label
WITH named AS (
    SELECT label, layer, head, text, share, count(*) OVER (PARTITION BY label) AS heads
    FROM head_labels
    WHERE study = $study
),
texts AS (FROM tokens WHERE study = $study AND sequence < $sequences),
keys AS (
    SELECT
        layer, head, top_keys.sequence, query, top_keys.position, weight,
        own.token_id AS asked,
        seen.token_id AS token,
        before.token_id AS previous
    FROM top_keys
    JOIN texts AS own ON own.sequence = top_keys.sequence AND own.position = top_keys.query
    JOIN texts AS seen ON seen.sequence = top_keys.sequence AND seen.position = top_keys.position
    LEFT JOIN texts AS before ON before.sequence = top_keys.sequence AND before.position = top_keys.position - 1
    WHERE top_keys.study = $study
),
held AS (
    SELECT
        label, layer, head, sequence, query,
        CASE WHEN label = 'diffuse' THEN 1 - max(weight) ELSE coalesce(sum(weight) FILTER (
            CASE label
                WHEN 'sink' THEN position = 0
                WHEN 'self' THEN position = query
                WHEN 'previous' THEN position = query - 1
                WHEN 'local' THEN position > query - 8
                WHEN 'duplicate' THEN token = asked AND position < query
                WHEN 'induction' THEN previous = asked AND position <= query
            END
        ), 0) END AS weight
    FROM named
    JOIN keys USING (layer, head)
    GROUP BY label, layer, head, sequence, query
)
SELECT
    label, heads, layer, head,
    any_value(share) AS share,
    any_value(named.text) AS text,
    max(held.weight) AS held,
    arg_max(sequence, (held.weight, -sequence, query)) AS sequence,
    arg_max(query, (held.weight, -sequence, query)) AS query
FROM held
JOIN named USING (label, layer, head)
GROUP BY label, heads, layer, head
ORDER BY label, share DESC, layer, head
