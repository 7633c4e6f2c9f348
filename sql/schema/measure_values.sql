-- grain:   one row per (study, measure, sequence)
-- inputs:  tables by sequence
-- meaning: the numbers of each sequence whose mean a measure is, or the jackknife's pseudo-values of one that is no mean;
--          correlations as Fisher's z, ratios as logarithms: intervals and tests are made of these
CREATE TABLE measure_values (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- short name, as in measures
{{ key_columns("sequence") }}
    value DOUBLE NOT NULL -- the number of the sequence
)
