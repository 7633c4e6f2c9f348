WITH inducer AS (
    FROM head_pattern_means
    SELECT study, layer, head
    WHERE study = $study AND text = 'corpus' AND pattern = 'induction' AND lift > 1 AND p_holm <= 0.05
    ORDER BY share DESC
    LIMIT 1
),
looks AS (
    FROM top_keys
    SEMI JOIN inducer USING (study, layer, head)
    SELECT study, sequence, query, position, weight
    WHERE position > 0
    QUALIFY row_number() OVER (PARTITION BY sequence, query ORDER BY rank) = 1
)
FROM looks
JOIN tokens AS mine ON (mine.study, mine.sequence, mine.position) = (looks.study, looks.sequence, looks.query)
JOIN tokens AS key ON (key.study, key.sequence, key.position) = (looks.study, looks.sequence, looks.position)
JOIN tokens AS before ON (before.study, before.sequence, before.position) = (key.study, key.sequence, key.position - 1)
SELECT
    looks.sequence, looks.query,
    mine.token AS reads,
    looks.query - before.position AS tokens_back,
    key.token AS copies,
    looks.weight
WHERE before.token_id = mine.token_id AND looks.sequence < 4
ORDER BY looks.weight DESC
