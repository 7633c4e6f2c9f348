-- grain:   one row per (study, measure)
-- inputs:  tables by sequence
-- meaning: numbers of the whole model, at the last query unless said otherwise: means over all heads of each sequence,
--          then over sequences. A number is printed under one name everywhere, and claims are about these. Beside it the
--          same of the study's twin, a model of random weights, and the difference, paired by sequence
CREATE TABLE measures (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- short name
    meaning VARCHAR NOT NULL, -- what it is
{{ interval_columns("value", "the number; NULL if it does not exist", "(-inf, inf)") }}
    rows INTEGER NOT NULL, -- number of heads, KV heads or other rows behind it, as its meaning says [0, inf)
    sequences INTEGER NOT NULL, -- number of sequences that have it [0, inf)
    of_sequences DOUBLE[], -- the number of each sequence, NULL for one that has none: see measure_values
    draws INTEGER, -- random arrangements, of KV groups within layers or of layers, that it is tested against; NULL: it is not [1, inf)
    seed INTEGER, -- their seed [0, inf)
    twin_value DOUBLE, -- the number for the twin; NULL without one
    twin_low DOUBLE, -- lower end of its interval
    twin_high DOUBLE, -- upper end of that interval
{{ interval_columns("twin_difference", "value minus twin_value on the same sequences, for a correlation of Fisher's z, for a ratio of logarithms", "(-inf, inf)") }}
    twin_p DOUBLE -- p value of that difference against 0, two-sided [0, 1]
)
