-- grain:   one row per (study, query, layer, head); every head of `heads` has exactly one
-- inputs:  head_signatures, taxonomy
-- meaning: which kind of head each is, by the thresholds of the macro taxonomy (Section 4.2, Figure 8); other
--          thresholds: FROM taxonomy(last_high := 0.6)
CREATE TABLE head_taxonomy (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    label VARCHAR NOT NULL, -- 'Retriever', 'Mixer' or 'Reset': the rule with the highest score, ties in this order
    fits_rule BOOLEAN NOT NULL, -- whether the head meets that rule (score >= 0); if not, it is the nearest one
    margin DOUBLE NOT NULL, -- by how much the score of the label exceeds the next one
    agreement DOUBLE NOT NULL, -- share of sequences that alone would give the same label
    sequences INTEGER NOT NULL, -- number of sequences
    retriever_score DOUBLE NOT NULL, -- how far the head is beyond the thresholds of a Retriever; below 0: short of them
    mixer_score DOUBLE NOT NULL, -- the same for a Mixer
    reset_score DOUBLE NOT NULL, -- the same for a Reset head
    sink_share DOUBLE NOT NULL, -- norm_y_0 / (norm_y_0 + norm_y_last + norm_rest), of means over sequences
    last_share DOUBLE NOT NULL, -- norm_y_last over the same sum
    rest_share DOUBLE NOT NULL, -- norm_rest over the same sum
    spread DOUBLE NOT NULL, -- total_rest / (norm_y_0 + norm_y_last + total_rest), of means over sequences
    cos_sink_level DOUBLE, -- mean over sequences; NULL if a window hides the sink or its norm is 0
    cos_sink_change DOUBLE, -- mean over sequences
    cos_last_level DOUBLE, -- mean over sequences
    cos_last_change DOUBLE -- mean over sequences
)
