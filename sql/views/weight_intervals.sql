-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  logit_range
-- meaning: the interval that norms of queries and keys imply for every weight of a row, and how loose it is: if no
--          logit exceeds logit_bound in absolute value, every weight (divided by their sum) lies between exp(-2
--          logit_bound) / n_keys and exp(2 logit_bound) / n_keys; NULL without norms
CREATE OR REPLACE VIEW weight_intervals AS
WITH bounded AS (
    SELECT
        *,
        query_norm::DOUBLE * key_norm AS product,
        CASE
            WHEN logit_cap IS NULL THEN product
            ELSE logit_cap::DOUBLE * tanh(product / logit_cap)
        END AS logit_bound,
        -- logits and norms are float32
        logit_bound * (1 + 1e-4) + 1e-4 AS rounded
    FROM logit_range
)
SELECT
{{ key_names("study", "sequence", "query", "layer", "head") }}
    n_keys, -- number of keys the query may attend to
    query_norm, -- norm of the query, times the scale of the attention
    key_norm, -- largest norm of a key that the query attends to
    logit_cap, -- soft cap of the layer's logits; NULL without one
    logit_bound, -- Δ, upper bound of all logits in absolute value: the product of both norms, or with a cap c tanh(product / c)
    exp(-2 * logit_bound) / n_keys AS lower, -- lower end of the interval
    least(exp(2 * logit_bound) / n_keys, 1) AS upper, -- upper end, at most 1
    least_weight, -- smallest weight, divided by the sum of the weights
    largest_weight, -- largest weight, divided by the sum of the weights
    underflowed, -- number of keys whose weight underflowed to 0
    ln(n_keys * largest_weight) <= 2 * rounded AND (
        CASE
            WHEN least_weight > 0 THEN -ln(n_keys * least_weight) <= 2 * rounded
            ELSE 2 * rounded + ln(n_keys) > 85 -- the end of the interval is below what float32 can hold as well
        END
    ) AS holds, -- whether all weights lie within, up to the rounding of logits in float32
    CASE WHEN least_weight > 0 THEN ln(largest_weight / least_weight) END AS logit_spread, -- largest minus smallest logit
    logit_spread / nullif(2 * logit_bound, 0) AS used, -- logit_spread divided by 2Δ; 1 if the interval is tight
FROM bounded
