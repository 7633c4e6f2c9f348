-- grain:   one row, or none if no head attends to more than one key
-- inputs:  key_budgets, key_budgets_model; $study, $query
-- meaning: how many keys hold 90 % of the weight, with intervals: of the mean head, and of the heads that need fewest
--          and most
WITH placed AS (
    SELECT
        (n_90, layer, head) AS place,
        {
            'layer': layer,
            'head': head,
            'n_keys': n_keys,
            'n_90': n_90,
            'low': n_90_low,
            'high': n_90_high,
            'sequences': sequences
        } AS found
    FROM key_budgets
    WHERE study = $study AND query = $query
)
SELECT heads, n_keys, sequences, n_90, n_90_low AS low, n_90_high AS high, fewest, most
FROM key_budgets_model
CROSS JOIN (SELECT arg_min(found, place) AS fewest, arg_max(found, place) AS most FROM placed) AS ends
WHERE study = $study AND query = $query AND layer IS NULL
