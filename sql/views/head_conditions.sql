-- grain:   one row per (study, query, layer, head, kind, condition)
-- inputs:  kinds_by_sequence
-- meaning: why a head has its label: every condition of every rule (Section 4.2), the share of sequences in which it is
--          met, and means of the value and threshold compared. A rule requires all of its conditions without a way and,
--          if it has ways, all conditions of at least one of them: {{ described_conditions }}
CREATE OR REPLACE VIEW head_conditions AS
SELECT
{{ key_names("study", "query", "layer", "head") }}
    kind, -- the kind of heads whose rule the condition belongs to
    way, -- the alternative way to meet the rule that it belongs to; NULL: required in every way
    condition, -- name of the condition
    avg(value) AS value, -- measured value, mean over sequences; NULL if it does not exist (a hidden sink, one key, a vector of norm 0)
    any_value(direction) AS direction, -- comparison that the value must satisfy: '>=', '<=' or '>'
    avg(threshold) AS threshold, -- threshold for this head, mean over sequences; NULL if it does not exist
    avg(met::INTEGER) AS met_share, -- share of sequences in which the condition is met; 0 without a value
FROM (SELECT study, query, layer, head, unnest(conditions, recursive := true) FROM kinds_by_sequence)
GROUP BY study, query, layer, head, kind, way, condition
