-- grain:   one row per (study, query, layer, head, kind, condition)
-- inputs:  kinds_by_sequence
-- meaning: why a head has its label: every condition of every rule (Section 4.2), the share of sequences in which it is
--          met, and means of the value and threshold compared. A rule requires all of its conditions without a way and,
--          if it has ways, all conditions of at least one of them: {{ described_conditions }}
CREATE TABLE head_conditions (
{{ key_columns("study", "query", "layer", "head") }}
    kind VARCHAR NOT NULL, -- the kind of heads whose rule the condition belongs to
    way VARCHAR, -- the alternative way to meet the rule that it belongs to; NULL: required in every way
    condition VARCHAR NOT NULL, -- name of the condition
    value DOUBLE, -- measured value, mean over sequences; NULL if it does not exist (a hidden sink, one key, a vector of norm 0)
    direction VARCHAR NOT NULL, -- comparison that the value must satisfy: '>=', '<=' or '>'
    threshold DOUBLE, -- threshold for this head, mean over sequences; NULL if it does not exist
    met_share DOUBLE NOT NULL -- share of sequences in which the condition is met; 0 without a value [0, 1]
)
