-- grain:   one row per (study, layer, head)
-- inputs:  head_ablation, head_taxonomy, last_query
-- meaning: Without which heads do models lose most, and of what kind are these? In every study with effects
FROM head_ablation
LEFT JOIN (FROM head_taxonomy WHERE query = last_query(study)) AS labelled USING (study, layer, head)
SELECT study, layer, head, label, delta_loss, delta_loss_ci_low, delta_loss_ci_high, kl
WHERE kind = 'zero'
QUALIFY row_number() OVER (PARTITION BY study ORDER BY delta_loss DESC) <= 8
ORDER BY study, delta_loss DESC
