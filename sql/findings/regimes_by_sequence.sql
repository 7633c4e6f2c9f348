-- grain:   one row, or none if nothing was measured
-- inputs:  regimes_by_sequence
-- meaning: where the theorems' premise holds, in a sentence
SELECT
    format(
        'Δ > 0, the theorems'' premise, holds in {:.3g} % of the selections with N > 1',
        100 * sum(positive_share * (last_n - first_n + 1)) / sum(last_n - first_n + 1)
    ) AS finding
FROM regimes_by_sequence
WHERE positive_share IS NOT NULL
HAVING count(*) > 0
