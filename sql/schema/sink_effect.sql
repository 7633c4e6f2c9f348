-- grain:   one row per (study, query, n)
-- inputs:  counts and ρ_0 of the metrics store
-- meaning: Pearson correlation over heads of mean Recall R(r_min, N) and mean ρ_0, both over sequences, with percentile
--          intervals of 1000 bootstrap replicates over sequences (Figure 6); excluded are heads without ρ_0 (a window
--          hides the sink, or its value state or all others have norm 0) and heads with no more than N keys
CREATE TABLE sink_effect (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    n INTEGER NOT NULL, -- N, the number of selected keys
    heads INTEGER NOT NULL, -- number of heads included
    sequences INTEGER NOT NULL, -- number of sequences averaged
    correlation DOUBLE, -- the correlation; NULL for fewer than three heads, or if Recall or ρ_0 is the same in all of them
    correlation_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    correlation_ci_high DOUBLE -- upper end of that interval
)
