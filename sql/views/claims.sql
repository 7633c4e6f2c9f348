-- grain:   one row per (study, claim)
-- inputs:  studies, paper_claims, claim_estimates
-- meaning: what the paper claims, and whether this model supports it: 'supported' or 'not supported' where the whole
--          interval of the measure lies on one side of the threshold, 'undecided' where it does not, 'not testable' where
--          the claim's premise fails or too few rows carry it. Beside it the same of the study's twin, a model of random
--          weights: what that supports too is no finding about training
CREATE OR REPLACE VIEW claims AS
WITH estimated AS (
    SELECT
        study,
        twin,
        paper_claims.*,
        value,
        low,
        high,
        coalesce(rows, 0) AS rows,
        clusters,
        claim_estimates.sequences,
        premise_value,
        CASE WHEN rows IS NULL THEN 'the study was landed without estimates' ELSE reason END AS why_not
    FROM studies
    CROSS JOIN paper_claims
    LEFT JOIN claim_estimates USING (study, claim)
),
judged AS (
    SELECT
        *,
        CASE direction
            WHEN '<=' THEN high <= threshold
            WHEN '<' THEN high < threshold
            WHEN '>=' THEN low >= threshold
            WHEN '>' THEN low > threshold
        END AS within,
        CASE direction
            WHEN '<=' THEN low > threshold
            WHEN '<' THEN low >= threshold
            WHEN '>=' THEN high < threshold
            WHEN '>' THEN high <= threshold
        END AS outside,
        CASE
            WHEN why_not IS NOT NULL OR low IS NULL OR high IS NULL THEN 'not testable'
            WHEN within THEN 'supported'
            WHEN outside THEN 'not supported'
            ELSE 'undecided'
        END AS verdict
    FROM estimated
),
twins AS (
    SELECT study AS twin, claim, value AS twin_value, low AS twin_low, high AS twin_high, verdict AS twin_verdict
    FROM judged
)
SELECT
    study, -- name of the study
    claim, -- short name of the claim
    figure, -- figure, table or section of the paper that makes it
    statement, -- what the paper says
    measure, -- what is measured here
    value, -- that, for this study; NULL where there is no such number
    low, -- lower end of its interval; those of all claims of a study hold at once with a probability of 95 %
    high, -- upper end of its interval
    direction, -- how the measure must lie to the threshold: '<=', '<', '>=' or '>'
    threshold, -- the end of what supports the claim
    verdict, -- 'supported', 'not supported', 'undecided' or 'not testable'
    rows, -- how many rows the measure rests on
    rows_of, -- what these rows are
    clusters, -- number of KV groups behind these
    sequences, -- number of sequences
    premise, -- what a study needs to test the claim; NULL: nothing
    premise_value, -- the number by which that is judged; NULL where it is not a number
    why_not AS reason, -- why the claim is not testable; NULL where it is
    twin, -- name of the study of random weights that this one is held against; NULL if it has none
    twin_value, -- the measure of the twin; NULL also where that has not landed
    twin_low, -- lower end of its interval
    twin_high, -- upper end of its interval
    twin_verdict, -- verdict about the twin; NULL without one
    CASE
        WHEN verdict = 'supported' AND twin_verdict <> 'undecided' THEN twin_verdict <> 'supported'
    END AS finding, -- of a claim that is supported: whether the twin does not support it too; NULL: not known
FROM judged
LEFT JOIN twins USING (twin, claim)
