-- grain:   one row per (study, query, n)
-- inputs:  counts and ρ_0 of the metrics store
-- meaning: Pearson correlation over heads of mean Recall R(r_min, N) and mean ρ_0, both over sequences, on a log grid of
--          n (Figure 6). Depth moves both, so that it is shown and not judged. Excluded are heads without ρ_0 (a window
--          hides the sink, or its value state or all others have norm 0) and heads with no more than N keys
-- rows:    query_grid
CREATE TABLE sink_effect (
{{ key_columns("study", "query", "n") }}
    heads INTEGER NOT NULL, -- number of heads included [0, inf)
{{ key_columns("sequences") }}
{{ interval_columns("correlation", "the correlation; NULL for fewer than three heads, or if Recall or ρ_0 is the same in all of them", "[-1, 1]", last=true) }}
)
