-- grain:   one row per (study, query, layer, head, temperature)
-- inputs:  weights and value states; settings temperatures and temperature_sequences
-- meaning: how widely the weights at a temperature are spread, mean over the sequences of temperature_means; as in
--          concentration, these are means of the numbers, not the numbers of mean weights
-- rows:    all_head_queries * temperatures
CREATE TABLE temperature_concentration (
{{ key_columns("study", "query", "layer", "head", "temperature", "sequences") }}
    effective_keys DOUBLE NOT NULL, -- effective number of keys attended to, the exponential of the entropy of the weights
    n_50 DOUBLE NOT NULL, -- fewest keys that hold 50 % of the weight
    n_90 DOUBLE NOT NULL, -- fewest keys that hold 90 % of the weight
    n_99 DOUBLE NOT NULL, -- fewest keys that hold 99 % of the weight
    top_weight DOUBLE NOT NULL, -- largest weight
    largest_deviation DOUBLE NOT NULL, -- largest difference of a weight from the uniform 1 / n_keys
    effective_contributors DOUBLE, -- effective number of keys that contribute, the exponential of the entropy of the weighted norms; NULL if all are 0
    underflowed DOUBLE NOT NULL -- number of keys with weight 0; at T = 1 those whose weight underflowed in the model
)
