-- grain:   one row, or none if no head attends to more than one key
-- inputs:  key_budgets, key_budgets_model; $study, $query
-- meaning: how many keys hold 90 % of the weight, with intervals: of the mean head, and of the heads that need fewest
--          and most
WITH ends AS (
    SELECT arg_min(found, (n_90, layer, head)) AS fewest, arg_max(found, (n_90, layer, head)) AS most
    FROM (
        SELECT layer, head, n_keys, n_90, n_90_low AS low, n_90_high AS high, sequences
        FROM key_budgets
        WHERE study = $study AND query = $query
    ) AS found
)
SELECT heads, n_keys, sequences, n_90, n_90_low AS low, n_90_high AS high, fewest, most
FROM key_budgets_model
CROSS JOIN ends
WHERE study = $study AND query = $query AND layer IS NULL
