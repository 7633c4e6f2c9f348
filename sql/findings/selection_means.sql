-- grain:   one row, or none if nothing was measured
-- inputs:  selection_means_model
-- meaning: where the harmonic mean of Precision and Recall is lowest, in a sentence
SELECT
    format(
        'Recall at N = {} is {:.2f}; its harmonic mean with Precision is lowest at N = {}',
        any_value(near),
        any_value(recall_near),
        arg_min(n, 2 * precision * recall / (precision + recall))
    ) AS finding
FROM (
    SELECT
        *,
        arg_min(n, abs(ln(n / 4))) OVER () AS near,
        arg_min(recall, abs(ln(n / 4))) OVER () AS recall_near
    FROM selection_means_model
    WHERE query = (SELECT max(query) FROM selection_means_model) AND n > 1
)
HAVING count(*) > 0
