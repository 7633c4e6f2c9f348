-- grain:   one row per (study, claim, part)
-- inputs:  measures
-- meaning: the comparisons that a claim consists of: all must hold, or, if alternatives, one of them
CREATE TABLE claim_parts (
{{ key_columns("study") }}
    claim VARCHAR NOT NULL, -- short name of the claim
    part SMALLINT NOT NULL, -- number of the comparison, from 0
    measure VARCHAR NOT NULL, -- the measure that is compared
    label VARCHAR NOT NULL, -- what tells it from those of the other parts, in words
    direction VARCHAR NOT NULL, -- comparison that supports the claim: '<=', '<', '>=' or '>'
    threshold DOUBLE NOT NULL, -- the number that the measure is compared with
    is_alternative BOOLEAN NOT NULL, -- whether one such part is enough
{{ interval_columns("value", "the measure", "(-inf, inf)") }}
    p_supports DOUBLE, -- one-sided p value in favour of the comparison [0, 1]
    p_opposes DOUBLE, -- one-sided p value against it [0, 1]
    verdict VARCHAR NOT NULL -- verdict on the comparison: that on the claim if it needs all parts, else by this one's p value times the number of parts, at the level of Holm's correction for all claims
)
