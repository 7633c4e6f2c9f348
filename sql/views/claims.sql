-- grain:   one row per (study, claim)
-- inputs:  studies, paper_claims, claim_estimates
-- meaning: the paper's claims, and whether this model supports them: 'supported' or 'not supported' if the whole
--          interval of the measure lies on one side of the threshold, 'undecided' if it does not, 'not testable' if the
--          claim's premise fails or it has too few rows. The same is given for the study's twin, a model of random
--          weights: a claim that the twin supports too is not a finding about training
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
    value, -- the measure for this study; NULL if it does not exist
    low, -- lower end of its interval; the intervals of all claims of a study hold simultaneously with a probability of 95 %
    high, -- upper end of its interval
    direction, -- comparison that supports the claim, of the measure with the threshold: '<=', '<', '>=' or '>'
    threshold, -- the value that the measure is compared with
    verdict, -- 'supported', 'not supported', 'undecided' or 'not testable'
    rows, -- number of rows that the measure is computed from
    rows_of, -- what these rows are
    clusters, -- number of KV groups that these rows belong to
    sequences, -- number of sequences
    premise, -- requirement for a study to test the claim; NULL: none
    premise_value, -- the number that decides whether the premise holds; NULL if it is not a number
    why_not AS reason, -- why the claim is not testable; NULL if it is
    twin, -- name of the study of random weights that this one is compared with; NULL if it has none
    twin_value, -- the measure for the twin; NULL also if the twin has not landed
    twin_low, -- lower end of its interval
    twin_high, -- upper end of its interval
    twin_verdict, -- verdict for the twin; NULL without a twin
    CASE
        WHEN verdict = 'supported' AND twin_verdict <> 'undecided' THEN twin_verdict <> 'supported'
    END AS finding, -- for a supported claim, whether the twin does not support it; NULL: not known
FROM judged
LEFT JOIN twins USING (twin, claim)
