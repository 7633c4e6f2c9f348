-- grain:   one number
-- inputs:  tail; margins
-- meaning: the failure term that eq. 12 and 14 subtract: (n_keys - n) times the tail of the margin, plus (n_keys - n) /
--          n times that of the sink's margin, which is left out if it is NULL; NULL without a margin
CREATE MACRO miss(n, n_keys, margin, sink_margin, head_dim, kappa) AS
    (n_keys - n) * (tail(margin, head_dim, kappa) + coalesce(tail(sink_margin, head_dim, kappa), 0) / n)
