-- grain:   one row per (study, query, layer, head, kind, condition)
-- inputs:  head_signatures, signature_means, label_heads, taxonomy_thresholds
-- meaning: why a head has its label: every condition of every rule (Section 4.2), the value and threshold compared,
--          from means over sequences, and whether it is met. A rule requires all of its conditions without a way and,
--          if it has ways, all conditions of at least one of them: {{ described_conditions }}
CREATE TABLE head_conditions (
{{ key_columns("study", "query", "layer", "head") }}
    kind VARCHAR NOT NULL, -- the kind of heads whose rule the condition belongs to
    way VARCHAR, -- the alternative way to meet the rule that it belongs to; NULL: required in every way
    condition VARCHAR NOT NULL, -- name of the condition
    value DOUBLE, -- measured value; NULL if it does not exist (a hidden sink, one key, a vector of norm 0)
    direction VARCHAR NOT NULL, -- comparison that the value must satisfy: '>=', '<=' or '>'
    threshold DOUBLE, -- threshold for this head; NULL if it does not exist
    met BOOLEAN NOT NULL -- whether the condition is met; false if there is no value
)
