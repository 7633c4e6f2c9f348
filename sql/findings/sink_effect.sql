-- grain:   one row, or none if nothing was measured
-- inputs:  sink_effect
-- meaning: the correlation of the sink's similarity and Recall, in a sentence
SELECT
    format('ρ_0 and Recall correlate by {:+.2f} over heads at N = {}', correlation, n) AS finding
FROM sink_effect
WHERE query = (SELECT max(query) FROM sink_effect) AND correlation IS NOT NULL
ORDER BY abs(ln(n / 16))
LIMIT 1
