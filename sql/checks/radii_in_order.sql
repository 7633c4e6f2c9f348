-- grain:   one row per selection whose radii contradict its counts
-- inputs:  selection_counts
-- meaning: no key left out lies within r_max exactly if r_min exceeds r_max (up to rounding of the stored radii), and
--          then all selected keys lie within r_min
SELECT sequence, query, layer, head, n, r_min, r_max, k_in, k_out
FROM selection_counts
WHERE
    study = $study
    AND (
        (k_out = 0 AND (r_min < r_max * (1 - 1e-6) OR k_in <> n))
        OR (k_out > 0 AND r_min * (1 - 1e-6) > r_max)
    )
