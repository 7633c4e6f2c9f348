-- grain:   one row per (study)
-- inputs:  assumption_similarity
-- meaning: Assumption 2 for the whole model: the fits of assumption_similarity to the mean cosine over all KV heads
CREATE OR REPLACE VIEW assumption_similarity_model AS
SELECT
{{ column_names("assumption_similarity", "layer", "kv_head") }}
FROM assumption_similarity
WHERE layer IS NULL
