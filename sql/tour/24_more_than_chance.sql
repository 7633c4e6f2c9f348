-- grain:   one row per (n, null_model); n is the first of the log grid in each doubling
-- inputs:  separability_model, more_than_chance, last_query; $study
-- meaning: Is a selected key nearer to the output than one left out more often than by chance, and in how many heads?
FROM separability_model
JOIN more_than_chance() USING (study, query, measure, null_model, n)
SELECT n, null_model, value AS auc, null_value AS chance, difference, difference_low, difference_high, above AS heads_above, below AS heads_below
WHERE study = $study AND query = last_query($study) AND measure = 'auc'
QUALIFY row_number() OVER (PARTITION BY null_model, floor(log2(n)) ORDER BY n) = 1
ORDER BY n, null_model
