-- grain:   one row per layer
-- inputs:  best_n, last_query; $study
-- meaning: Which head of each layer best separates what it selects, and at which N of 2 to 32? QUALIFY keeps one row of
--          each.
FROM best_n('harmonic_mean', last_n := 32)
SELECT layer, head, best_n, value AS harmonic_mean
WHERE study = $study AND query = last_query($study)
QUALIFY row_number() OVER (PARTITION BY layer ORDER BY value DESC, head) = 1
ORDER BY layer
