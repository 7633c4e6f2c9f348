-- grain:   one row per (study, query, n, measure, null_model)
-- inputs:  separability
-- meaning: the measures of separability, mean over heads and sequences, compared with chance
CREATE OR REPLACE VIEW separability_model AS
SELECT
{{ column_names("separability", "layer", "head") }}
FROM separability
WHERE layer IS NULL
