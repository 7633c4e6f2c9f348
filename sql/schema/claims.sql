-- grain:   one row per (study, claim)
-- inputs:  measures, claim_parts
-- meaning: claims of the paper, and whether this model supports them. A claim is a comparison of measures with
--          thresholds (claim_parts), all of which must hold; it is supported, or not, if its p value is at most 5 % after
--          Holm's correction for all claims that the study tests, and else undecided
CREATE TABLE claims (
{{ key_columns("study") }}
    claim VARCHAR NOT NULL, -- short name of the claim
    source VARCHAR NOT NULL, -- figure, table or section that makes it
    statement VARCHAR NOT NULL, -- what the paper says
    verdict VARCHAR NOT NULL, -- 'supported', 'not supported', 'undecided' or 'not testable'
    sentence VARCHAR NOT NULL, -- the verdict in a sentence, with its numbers
    p DOUBLE, -- p value against the threshold, two-sided, for random arrangements the upper end of the 99.9 % interval that their number leaves; NULL if not testable [0, 1]
    p_holm DOUBLE, -- the same after Holm's correction [0, 1]
    sequences INTEGER NOT NULL, -- number of sequences [1, inf)
    sequences_needed INTEGER, -- number of sequences that would decide an undecided claim with a power of 80 % at this estimate and spread; NULL if more than 100,000, or if none would [5, inf)
    limited_by VARCHAR, -- what of the model is too few to decide it with any number of sequences, such as '9 KV groups'; NULL: nothing
    rows INTEGER NOT NULL, -- number of rows behind it [0, inf)
    rows_of VARCHAR NOT NULL, -- what these rows are
    premise VARCHAR, -- requirement for a study to test the claim; NULL: none
    reason VARCHAR, -- why the claim is not testable; NULL if it is
    shown_by VARCHAR NOT NULL, -- the figure of the report that shows it
    twin VARCHAR, -- name of the study of random weights that this one is compared with; NULL if it has none, or that has not landed
    twin_verdict VARCHAR, -- verdict for the twin; NULL without one, and of a claim that is itself a difference from it
    beyond_twin BOOLEAN -- for a supported claim, whether its measures differ from the twin's in the direction of the claim, at 5 %; NULL if not known, as where it is not testable on the twin
)
