-- grain:   one row per claim whose estimate is missing, duplicated, or impossible
-- inputs:  claim_estimates, paper_claims, studies
-- meaning: every claim has one estimate, over all sequences of the study; its interval contains it, and exists exactly
--          if there is no reason against a test
SELECT
    claim,
    count(estimates.study) AS found,
    any_value(value) AS value,
    any_value(low) AS low,
    any_value(high) AS high,
    any_value(reason) AS reason
FROM (SELECT * FROM claim_estimates WHERE study = $study) AS estimates
FULL JOIN paper_claims USING (claim)
GROUP BY claim
HAVING
    count(estimates.study) <> 1
    OR count(paper_claims.statement) <> 1
    OR bool_or(
        sequences <> (SELECT any_value(sequences) FROM studies WHERE study = $study)
        OR (low IS NULL) <> (high IS NULL)
        OR (reason IS NULL AND (value IS NULL OR low IS NULL))
        OR NOT coalesce(low <= value AND value <= high, true)
        OR NOT isfinite(coalesce(value, 0))
        OR least(rows, clusters) < 0
    )
