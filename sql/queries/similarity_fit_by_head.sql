-- grain:   one row per (layer, kv_head)
-- inputs:  assumption_similarity; $study
-- meaning: Assumption 2 for each KV head: β and the error of the exponential (Figure 3), the same with a floor, which
--          of the two the criterion prefers, and ρ_0
SELECT
    layer,
    kv_head,
    status,
    sequences,
    beta,
    beta_se,
    mae,
    status_floor,
    beta_floor,
    beta_floor_se,
    floor,
    floor_se,
    mae_floor,
    preferred,
    rho_0,
    rho_0_sd,
    rho_0_se
FROM assumption_similarity
WHERE study = $study
ORDER BY layer, kv_head
