-- grain:   one row per (layer, kv_head)
-- inputs:  assumption_similarity; $study
-- meaning: Assumption 2 for each KV head: β and the error of the exponential (Figure 3), the same with a floor, which
--          of the two the criterion prefers, and ρ_0
SELECT
    layer, kv_head, status, sequences, beta, beta_low, beta_high, mae, status_floor, beta_floor,
    beta_floor_low, beta_floor_high, floor, floor_low, floor_high, mae_floor, preferred, rho_0, rho_0_low,
    rho_0_high, rho_0_sd
FROM assumption_similarity
WHERE study = $study AND layer IS NOT NULL
ORDER BY layer, kv_head
