-- grain:   one row per (study, query, n)
-- inputs:  selection_means_model
-- meaning: Pearson correlation over heads of mean Recall R(r_min, N) and mean ρ_0, both over sequences, on a log grid of
--          n (Figure 6). Depth moves both, so that it is shown and not judged. Excluded are heads without ρ_0 (a window
--          hides the sink, or its value state or all others have norm 0) and heads with no more than N keys
CREATE OR REPLACE VIEW sink_effect AS
SELECT
{{ key_names("study", "query", "n") }}
    correlated_heads AS heads, -- number of heads included
{{ key_names("sequences") }}
    correlation, -- the correlation; NULL for fewer than three heads, or if Recall or ρ_0 is the same in all of them
    correlation_low, -- lower end of its 95 % interval over sequences; NULL for one
    correlation_high, -- upper end of that interval
FROM selection_means_model
WHERE correlated_heads IS NOT NULL
