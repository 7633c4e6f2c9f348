-- grain:   one row per (study, kappa, metric, without_sequence)
-- inputs:  counts and bounds of the metrics store
-- meaning: how the bounds of the theorems hold at the last query, on a log grid of n, as means over ln N from 2 on: of
--          all sequences, and without each, from which intervals follow (jackknife). The bounds are of expectations, so
--          means over sequences are compared with mean bounds
CREATE TABLE coverage_by_sequence (
{{ key_columns("study") }}
    kappa DOUBLE NOT NULL, -- κ of the bounds (0, inf)
    metric VARCHAR NOT NULL, -- 'precision' or 'recall'
    without_sequence INTEGER, -- the sequence that is left out; NULL: none
    covered DOUBLE, -- share of the heads and n whose mean lies within its bounds, among those where Δ > 0 in most sequences and the bounds exclude half of what is possible; NULL without such [0, 1]
    covered_rows INTEGER NOT NULL, -- number of these heads and n [0, inf)
    enveloped DOUBLE, -- share of ln N at which the mean of the model lies within its mean bounds, among n at which these exclude half of what is possible [0, 1]
    enveloped_rows INTEGER NOT NULL, -- number of these n [0, inf)
    upper_distance DOUBLE, -- mean distance of the model's mean from its mean upper bound [0, 1]
    lower_excess DOUBLE, -- mean of the model's mean minus its mean lower bound, minus the distance to the upper one, over the n at which the lower bound alone leaves out a tenth of what is possible [-1, 1]
    lower_rows INTEGER NOT NULL -- number of these n [0, inf)
)
