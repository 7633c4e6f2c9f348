-- grain:   one row per (sequence, query, layer, head) whose weights contradict the norms of queries and keys
-- inputs:  weight_intervals, attention_rows
-- meaning: every weight lies in the interval that the norms imply, up to the rounding of logits in float32; the
--          smallest is at most the uniform one and the largest at least that, a weight of 0 is one that underflowed,
--          and both norms exist or neither
SELECT
    sequence, query, layer, head, weights.n_keys, query_norm, key_norm, logit_cap, least_weight, largest_weight, underflowed
FROM (SELECT * FROM weight_intervals WHERE study = $study) AS weights
FULL JOIN (SELECT * FROM attention_rows WHERE study = $study) AS attended USING (sequence, query, layer, head)
WHERE
    NOT coalesce(weights.n_keys = attended.n_keys, false)
    OR NOT coalesce(holds, true)
    OR NOT isfinite(coalesce(logit_bound, 0))
    OR (query_norm IS NULL) <> (key_norm IS NULL)
    OR least(query_norm, key_norm, least_weight, underflowed) < 0
    OR logit_cap <= 0
    OR least_weight * weights.n_keys > 1 + 1e-5
    OR largest_weight * weights.n_keys < 1 - 1e-5
    OR largest_weight > 1 + 1e-5
    OR (least_weight = 0) <> (underflowed > 0)
