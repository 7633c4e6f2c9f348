-- grain:   one row per (measure, null_model, n)
-- inputs:  separability_model, more_than_chance; $study, $query
-- meaning: the measures of separability of the whole model compared with chance, with the interval of the difference,
--          and the shares of heads whose own interval lies above and below 0
SELECT
    measure, null_model, n, model.heads, sequences, draws, value, null_value, difference,
    difference_low AS low,
    difference_high AS high,
    above, below
FROM separability_model AS model
JOIN more_than_chance() USING (study, query, measure, null_model, n)
WHERE study = $study AND query = $query
ORDER BY measure, null_model, n
