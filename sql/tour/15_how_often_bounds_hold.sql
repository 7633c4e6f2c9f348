-- grain:   one row per (query, family, kappa)
-- inputs:  coverage; $study
-- meaning: How often do the bounds hold, how wide are they, and how often does their premise Δ > 0 hold at all?
FROM coverage
SELECT query, family, kappa, precision_coverage, recall_coverage, precision_width, recall_width, premise_share, premise_rows
WHERE study = $study
ORDER BY ALL
