-- grain:   one row per (family, study, claim)
-- inputs:  claims of the members
-- meaning: the verdicts of each member of a family on the claims of the paper
CREATE TABLE family_claims (
{{ key_columns("family", "study") }}
    claim VARCHAR NOT NULL, -- short name of the claim
    statement VARCHAR NOT NULL, -- what the paper says
    verdict VARCHAR NOT NULL, -- 'supported', 'not supported', 'undecided' or 'not testable'
    p_holm DOUBLE -- p value after Holm's correction within the study; NULL if not testable [0, 1]
)
