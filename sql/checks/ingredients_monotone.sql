-- grain:   one row per selection whose ingredients of the bounds contradict those of the next smaller n
-- inputs:  selection_counts
-- meaning: with one key more, a_0 stays the same once it exists, s_in (up to rounding) and a_max_in do not fall,
--          a_min_in and a_max_out do not rise; rows are compared with those landed before them, which must be those of
--          n - 1, since a window over the order of landing streams, while one over each head would sort all rows
SELECT sequence, query, layer, head, n, a_0, s_in, a_min_in, a_max_in, a_max_out
FROM selection_counts
WHERE study = $study
WINDOW landed AS ()
QUALIFY
    n > 1
    AND (
        lag(n) OVER landed IS DISTINCT FROM n - 1
        OR lag(head) OVER landed <> head
        OR lag(layer) OVER landed <> layer
        OR lag(query) OVER landed <> query
        OR lag(sequence) OVER landed <> sequence
        OR (lag(a_0) OVER landed IS NOT NULL AND a_0 IS DISTINCT FROM lag(a_0) OVER landed)
        OR s_in * (1 + 1e-6) + 1e-37 < lag(s_in) OVER landed
        OR a_max_in < lag(a_max_in) OVER landed
        OR a_min_in > lag(a_min_in) OVER landed
        OR a_max_out > lag(a_max_out) OVER landed
    )
