-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  head_signatures, label_heads, taxonomy_thresholds
-- meaning: the kind of a head in one sequence, with how narrowly, by the thresholds of the macro taxonomy (Section
--          4.2); head_taxonomy has the kinds over all sequences
-- rows:    sequences * all_head_queries
CREATE TABLE kinds_by_sequence (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    label VARCHAR NOT NULL, -- 'Retriever', 'Mixer' or 'Reset', whose rule the head meets in the sequence, or 'Other' if it meets none
    nearest VARCHAR, -- the kind with the highest score; NULL without a score
    retriever_score DOUBLE, -- by how much the head meets the rule of a Retriever, in its narrowest condition; below 0: by how much it misses it; NULL if an input of a condition does not exist
    mixer_score DOUBLE, -- the same for a Mixer
    reset_score DOUBLE, -- the same for a Reset head, in the better of its two ways
    conditions STRUCT(kind VARCHAR, way VARCHAR, condition VARCHAR, "value" DOUBLE, direction VARCHAR, threshold DOUBLE, met BOOLEAN)[] NOT NULL -- every condition of every rule, the value and threshold compared, and whether it is met
)
