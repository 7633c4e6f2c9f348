-- grain:   one row, or none if nothing was measured
-- inputs:  temperature_concentration, sensitivity
-- meaning: the effect of the temperature on the spread of the attention, in a sentence
SELECT
    format(
        'at temperature {:g} a head attends to {:.0f} keys, at {:g} to {:.0f}',
        min(temperature),
        arg_min(effective_keys, temperature),
        max(temperature),
        arg_max(effective_keys, temperature)
    ) AS finding
FROM (
    SELECT temperature, avg(effective_keys) AS effective_keys
    FROM temperature_concentration
    WHERE query = (SELECT max(query) FROM temperature_concentration)
    GROUP BY temperature
)
HAVING count(*) > 1
