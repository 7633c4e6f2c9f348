-- grain:   one row per (layer, head, regime); regimes without any N have no row
-- inputs:  selection_regimes; $study, $query
-- meaning: Table 2 for each head: first and last N of each regime and the trend of mean Δ/B within it
SELECT layer, head, regime, first_n, last_n, margin_first, margin_last, slope, positive_share
FROM selection_regimes
WHERE study = $study AND query = $query
ORDER BY layer, head, first_n
