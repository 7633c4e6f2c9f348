-- grain:   one row per (study, query, layer, head) of at least two keys
-- inputs:  concentration_means
-- meaning: how close a head's weights are to uniform ones, mean over sequences: if they converge to these as keys are
--          added (arXiv 2508.17821; only its abstract and secondary accounts were available), effective_share tends to
--          1, n_90_share to 0.9 and largest_deviation to 0; weights are divided by their sum
CREATE OR REPLACE VIEW convergence AS
SELECT
{{ key_names("study", "query", "layer", "head") }}
    n_keys::INTEGER AS n_keys, -- number of keys the query may attend to
    sequences, -- number of sequences
    effective_keys / concentration_means.n_keys AS effective_share, -- effective keys, the exponential of the entropy, over the number of keys
    n_90 / concentration_means.n_keys AS n_90_share, -- fewest keys that hold 90 % of the weight, over the number of keys
    largest_deviation, -- largest difference of a weight from the uniform 1 / n_keys
FROM concentration_means
WHERE concentration_means.n_keys > 1
