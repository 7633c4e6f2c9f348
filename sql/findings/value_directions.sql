-- grain:   one row, or none if nothing was measured
-- inputs:  principal_directions
-- meaning: how many directions the value states have, in a sentence
SELECT
    format(
        'value states point in {:.1f} effective directions in the median KV group',
        median(effective_dimension)
    ) AS finding
FROM principal_directions
WHERE effective_dimension IS NOT NULL
HAVING count(*) > 0
