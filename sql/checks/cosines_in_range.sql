-- grain:   one row per mean cosine beyond -1 and 1
-- inputs:  cosine_by_distance, sink_similarity, value_scales
-- meaning: -1 <= cosine <= 1 up to rounding, at every distance and between the sink and the others, of a sequence or of a
--          query's keys; distance is NULL for the sink, sequence for the others
SELECT layer, kv_head, distance, sequence, query, coalesce(mean_cosine, rho_0) AS cosine
FROM (FROM cosine_by_distance UNION ALL BY NAME FROM sink_similarity UNION ALL BY NAME FROM value_scales)
WHERE study = $study AND (abs(mean_cosine) > 1 + 1e-6 OR abs(rho_0) > 1 + 1e-6 OR least(sd_cosine, rho_0_sd) < 0)
