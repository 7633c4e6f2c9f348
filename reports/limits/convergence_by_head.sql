-- grain:   one row per (layer, head)
-- inputs:  convergence; $study, $query
-- meaning: how close the weights of every head are to uniform ones, which have an effective_share of 1 and an
--          n_90_share of 0.9
SELECT layer, head, n_keys, effective_share, n_90_share, largest_deviation
FROM convergence
WHERE study = $study AND query = $query
ORDER BY layer, head
