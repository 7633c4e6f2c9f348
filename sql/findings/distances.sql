-- grain:   one row, or none if nothing was measured
-- inputs:  distance_means_model
-- meaning: the distance of the selected keys from the rest, compared with that of random keys, in a sentence
SELECT
    format(
        'at N = {} the sum of the selected lies {:.2f} times as far from the rest as that of random keys',
        n,
        relative_distance / relative_random_distance
    ) AS finding
FROM distance_means_model
WHERE query = (SELECT max(query) FROM distance_means_model) AND relative_random_distance > 0
ORDER BY abs(ln(n / 16))
LIMIT 1
