-- grain:   one row, or none if nothing was measured
-- inputs:  separability_model
-- meaning: how far selection by attention is above two kinds of chance, in a sentence
SELECT
    format(
        'at N = {} AUC is {:.3f}, {:+.3f} against random selections and {:+.3f} against shuffled value states',
        n,
        any_value(value),
        any_value(difference) FILTER (WHERE null_model = 'random_selection'),
        any_value(difference) FILTER (WHERE null_model = 'shuffled_values')
    ) AS finding
FROM separability_model
WHERE measure = 'auc' AND query = (SELECT max(query) FROM separability_model)
GROUP BY n
ORDER BY abs(ln(n / 16))
LIMIT 1
