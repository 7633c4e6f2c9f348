-- grain:   one row per (sequence, position)
-- inputs:  tokens; $study, $sequences, $positions
-- meaning: the beginning of the text that was read; token is untrusted and must be escaped wherever it is shown; at
--          most $positions tokens of at most $sequences sequences
SELECT sequence, position, token_id, token
FROM tokens
WHERE study = $study AND sequence < $sequences AND position < $positions
ORDER BY sequence, position
