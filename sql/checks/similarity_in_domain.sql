-- grain:   one row per fit of Assumption 2 with a parameter outside its domain, or inconsistent with its status
-- inputs:  assumption_similarity
-- meaning: beta, beta_floor >= 0, -1 < floor < 1, -1 <= rho_0 <= 1 (up to rounding), 1 <= effective_points <=
--          distances; β exists if status is 'ok' or 'constant', β with a floor if status_floor is 'ok', the floor also
--          if that is 'unbounded'; layer and kv_head are NULL for the model
SELECT layer, kv_head, status, beta, status_floor, beta_floor, floor, preferred, rho_0
FROM assumption_similarity
WHERE
    study = $study
    AND (
        (beta IS NOT NULL) <> (status IN ('ok', 'constant'))
        OR (beta_floor IS NOT NULL) <> (status_floor = 'ok')
        OR (floor IS NOT NULL) <> (status_floor IN ('ok', 'unbounded'))
        OR NOT (beta >= 0)
        OR NOT (beta_floor >= 0)
        OR NOT (floor > -1 AND floor < 1)
        OR NOT (mae >= 0)
        OR NOT (effective_points <= distances)
        OR preferred NOT IN ('exponential', 'floor')
    )
