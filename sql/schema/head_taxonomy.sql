-- grain:   one row per (study, query, layer, head); every head of `heads` has exactly one
-- inputs:  head_signatures, taxonomy
-- meaning: the kind of each head, by the thresholds of the macro taxonomy (Section 4.2, Figure 8); other thresholds:
--          FROM taxonomy(last_high := 0.6); reasons: head_conditions
CREATE TABLE head_taxonomy (
{{ key_columns("study", "query", "layer", "head") }}
    label VARCHAR NOT NULL, -- 'Retriever', 'Mixer' or 'Reset', whose rule the head meets, or 'Other' if it meets none
    nearest VARCHAR, -- the kind with the highest score, which is the label unless that is 'Other'; NULL without a score
    single_key BOOLEAN NOT NULL, -- whether an 'Other' head has fewer than 2 effective contributors, and in most sequences the top one is neither sink nor last token
    margin DOUBLE, -- by how much the score of the label exceeds the next one, that of 'Other' being 0; NULL without a score
    agreement DOUBLE NOT NULL, -- share of sequences that would give the same label on their own
    sequences INTEGER NOT NULL, -- number of sequences
    retriever_score DOUBLE, -- by how much the head meets the rule of a Retriever, in its narrowest condition; below 0: by how much it misses it; NULL if an input of a condition does not exist
    mixer_score DOUBLE, -- the same for a Mixer
    reset_score DOUBLE, -- the same for a Reset head, in the better of its two ways
    sink_share DOUBLE, -- norm_y_0 / (norm_y_0 + norm_y_last + norm_rest), of means over sequences; NULL if a window hides the sink
    last_share DOUBLE, -- norm_y_last over the same sum; NULL if that is 0
    rest_share DOUBLE, -- norm_rest over the same sum; NULL if that is 0
    cos_sink_max DOUBLE, -- mean over sequences
    cos_sink_level DOUBLE, -- mean over sequences; NULL if a window hides the sink or its norm is 0
    cos_sink_change DOUBLE, -- mean over sequences
    cos_last_level DOUBLE, -- mean over sequences
    cos_last_change DOUBLE, -- mean over sequences
    cos_last_p05 DOUBLE, -- mean over sequences
    effective_contributors DOUBLE -- mean over sequences
)
