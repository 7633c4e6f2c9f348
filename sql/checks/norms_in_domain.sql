-- grain:   one row per (layer, kv_head) whose norms contradict their status
-- inputs:  assumption_norms
-- meaning: C is above 0 and λ exists if the status is 'ok'; C is 0 and λ does not exist if it is 'zero'
SELECT layer, kv_head, status, c, lambda_sink
FROM assumption_norms
WHERE
    study = $study
    AND CASE status
        WHEN 'ok' THEN NOT coalesce(c > 0 AND lambda_sink >= 0, false)
        WHEN 'zero' THEN c IS DISTINCT FROM 0 OR lambda_sink IS NOT NULL
        ELSE true
    END
