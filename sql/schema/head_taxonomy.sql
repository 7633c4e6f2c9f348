-- grain:   one row per (study, query, layer, head); every head of `heads` has exactly one
-- inputs:  head_signatures, taxonomy
-- meaning: the kind of each head over its sequences, by the thresholds of the macro taxonomy (Section 4.2, Figure 8);
--          other thresholds: FROM taxonomy(last_high := 0.6); one sequence: kinds_by_sequence; reasons: head_conditions
-- rows:    all_head_queries
CREATE TABLE head_taxonomy (
{{ key_columns("study", "query", "layer", "head") }}
    label VARCHAR NOT NULL, -- 'Retriever', 'Mixer' or 'Reset', the kind of the head in more than half of the sequences, or 'Other' without such a kind
    nearest VARCHAR, -- the kind with the highest score; NULL without a score
    single_key BOOLEAN NOT NULL, -- whether an 'Other' head has fewer than 2 effective contributors, and in most sequences the top one is neither sink nor last token
    margin DOUBLE, -- by how much the score of the label exceeds the next one, that of 'Other' being 0; below 0 if it does not; NULL without a score
    agreement DOUBLE NOT NULL, -- share of sequences that have the label [0, 1]
    sequences INTEGER NOT NULL, -- number of sequences
{% for kind in kinds %}
    {{ kind.name }}_share DOUBLE NOT NULL, -- share of sequences in which the head is of the kind {{ kind.label }} [0, 1]
{% endfor %}
    other_share DOUBLE NOT NULL, -- share of sequences in which it meets no rule [0, 1]
    retriever_score DOUBLE, -- by how much the head meets the rule of a Retriever, in its narrowest condition, mean over sequences; below 0: by how much it misses it; NULL if an input of a condition does not exist
    mixer_score DOUBLE, -- the same for a Mixer
    reset_score DOUBLE, -- the same for a Reset head, in the better of its two ways
    sink_share DOUBLE, -- norm_y_0 / (norm_y_0 + norm_y_last + norm_rest), mean over sequences; NULL if a window hides the sink [0, 1]
    last_share DOUBLE, -- norm_y_last over the same sum; NULL if that is 0 [0, 1]
    rest_share DOUBLE, -- norm_rest over the same sum; NULL if that is 0 [0, 1]
    cos_sink_max DOUBLE, -- mean over sequences
    cos_sink_level DOUBLE, -- mean over sequences; NULL if a window hides the sink or its norm is 0
{% for name in ("cos_sink_change", "cos_last_level", "cos_last_change", "cos_last_p05") %}
    {{ name }} DOUBLE, -- mean over sequences
{% endfor %}
    effective_contributors DOUBLE -- mean over sequences
)
