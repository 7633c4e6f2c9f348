-- grain:   one row per (study, text, layer, head, pattern)
-- inputs:  head_patterns
-- meaning: what a head looks at, on average over sequences, and how many times chance that is
CREATE TABLE head_pattern_means (
{{ key_columns("study") }}
    text VARCHAR NOT NULL, -- 'corpus', the text of the study, or 'probe', random tokens, half a sequence, twice
{{ key_columns("layer", "head") }}
    pattern VARCHAR NOT NULL, -- a column of head_patterns: 'sink', 'self', 'previous', …, 'entropy'
{{ key_columns("sequences") }}
    queries DOUBLE NOT NULL, -- number of queries over which the share of a sequence is a mean, on average over sequences [0, inf)
{{ interval_columns("share", "mean over sequences; NULL if none has such a query", "[0, 1]") }}
    chance DOUBLE, -- mean chance over sequences [0, 1]
{{ interval_columns("lift", "mean share over mean chance; NULL if that is 0", "[0, inf)") }}
    p DOUBLE, -- p value of a lift of 1, two-sided; NULL for fewer than four sequences [0, 1]
    p_holm DOUBLE -- the same after Holm's correction for all patterns of all heads in both texts [0, 1]
)
