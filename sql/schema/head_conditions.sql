-- grain:   one row per (study, query, layer, head, kind, condition)
-- inputs:  head_signatures, signature_means, label_heads, taxonomy_thresholds
-- meaning: why a head is of its kind or of none: every condition of every rule (Section 4.2), what is held against what,
--          of means over sequences, and whether it is met. A rule takes all conditions without a way, and all of one of
--          its ways, if it has any: {{ described_conditions }}
CREATE TABLE head_conditions (
{{ key_columns("study", "query", "layer", "head") }}
    kind VARCHAR NOT NULL, -- the kind of heads whose rule the condition belongs to
    way VARCHAR, -- which of several ways to meet the rule it belongs to; NULL: every way takes it
    condition VARCHAR NOT NULL, -- name of the condition
    value DOUBLE, -- what is measured; NULL where it does not exist (a hidden sink, one key, a vector of norm 0)
    direction VARCHAR NOT NULL, -- how it must lie to the threshold: '>=', '<=' or '>'
    threshold DOUBLE, -- what it is held against, for this head; NULL where that does not exist
    met BOOLEAN NOT NULL -- whether the condition is met; false where there is no value
)
