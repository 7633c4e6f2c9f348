-- grain:   one number
-- inputs:  tail; margins
-- meaning: what eq. 12 and 14 allow to go wrong: (n_keys - n) times the tail of the margin, plus (n_keys - n) / n times
--          that of the sink's; without the latter where there is no sink's margin; NULL without a margin
CREATE MACRO miss(n, n_keys, margin, sink_margin, head_dim, kappa) AS
    (n_keys - n) * (tail(margin, head_dim, kappa) + coalesce(tail(sink_margin, head_dim, kappa), 0) / n)
