-- grain:   one row per (layer, head), of the ten that retrieve most
-- inputs:  head_taxonomy, last_query; $study
-- meaning: Which heads are most like a Retriever, do they meet its rule, and how many sequences alone would say so?
FROM head_taxonomy
SELECT layer, head, label, retriever_score, fits_rule, agreement, last_share, cos_last_level
WHERE study = $study AND query = last_query($study)
ORDER BY retriever_score DESC, layer, head
LIMIT 10
