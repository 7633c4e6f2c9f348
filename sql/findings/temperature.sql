-- grain:   one row, or none if nothing was measured
-- inputs:  temperature_means
-- meaning: the effect of the temperature on the distance of the selected keys from the rest, in a sentence
SELECT
    format(
        'the sum of the selected lies {:.2f} times as far from the rest as that of random keys at temperature {:g}, {:.2f} at {:g}',
        arg_min(ratio, temperature),
        min(temperature),
        arg_max(ratio, temperature),
        max(temperature)
    ) AS finding
FROM (
    SELECT temperature, avg(distance / random_distance) AS ratio
    FROM temperature_means
    WHERE query = (SELECT max(query) FROM temperature_means) AND random_distance > 0
    GROUP BY temperature
)
HAVING count(*) > 1
