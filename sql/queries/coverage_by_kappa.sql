-- grain:   one row per (family, kappa)
-- inputs:  coverage; $study, $query
-- meaning: how often the bounds hold over (head, N) against κ, how wide they are, and how often their premise holds for
--          N > 1
SELECT * EXCLUDE (study, query)
FROM coverage
WHERE study = $study AND query = $query
ORDER BY family, kappa
