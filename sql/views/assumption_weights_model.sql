-- grain:   one row per (study, query)
-- inputs:  assumption_weights
-- meaning: Assumption 3 for the whole model: the fit of assumption_weights to the mean weight over all heads
CREATE OR REPLACE VIEW assumption_weights_model AS
SELECT
{{ column_names("assumption_weights", "layer", "head") }}
FROM assumption_weights
WHERE layer IS NULL
