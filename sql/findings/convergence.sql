-- grain:   one row, or none if nothing was measured
-- inputs:  convergence_model
-- meaning: how many keys the attention is spread over, in a sentence
SELECT
    format(
        'the effective number of keys is {:.0f} % of the {} that the last query attends to',
        100 * effective_share,
        query + 1
    ) AS finding
FROM convergence_model
WHERE query = (SELECT max(query) FROM convergence_model)
