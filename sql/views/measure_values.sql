-- grain:   one row per (study, measure, sequence)
-- inputs:  measures
-- meaning: the numbers of each sequence whose mean a measure is, or the jackknife's pseudo-values of one that is no mean;
--          correlations as Fisher's z, ratios as logarithms: intervals and tests are made of these
CREATE OR REPLACE VIEW measure_values AS
SELECT
{{ key_names("study") }}
    measure, -- short name, as in measures
{{ key_names("sequence") }}
    value, -- the number of the sequence
FROM (
    SELECT study, measure, generate_subscripts(of_sequences, 1)::INTEGER - 1 AS sequence, unnest(of_sequences) AS value
    FROM measures
)
WHERE value IS NOT NULL
