-- grain:   one row per selection whose ingredients of the bounds contradict each other
-- inputs:  selection_counts
-- meaning: J, the selected keys but the sink, is empty only at n = 1, and then all its quantities are NULL; otherwise
--          smallest, mean and largest are in order; no sum of vectors is longer than the sum of lengths (each up to
--          rounding: 1e-5 of it, and 1e-37, near which float32 has fewer digits)
WITH ingredients AS (
    SELECT *, n - (a_0 IS NOT NULL)::INTEGER AS in_j
    FROM selection_counts
    WHERE study = $study
)
SELECT
    sequence, query, layer, head, n, n_keys, norm_s, norm_s_without_sink,
    a_0, s_in, a_min_in, a_max_in, a_max_out, rho_out
FROM ingredients
WHERE
    (s_in IS NULL) <> (in_j = 0)
    OR (a_min_in IS NULL) <> (in_j = 0)
    OR (a_max_in IS NULL) <> (in_j = 0)
    OR (rho_out IS NULL) <> (in_j = 0)
    OR (a_0 IS NOT NULL AND n_keys <= query)
    OR s_in * (1 + 1e-5) + 1e-37 < in_j * a_min_in
    OR s_in * (1 - 1e-5) - 1e-37 > in_j * a_max_in
    OR s_in * (1 + 1e-5) + 1e-37 < coalesce(norm_s_without_sink, norm_s)
