-- grain:   one row per (study, layer, head)
-- inputs:  head_ablation, head_taxonomy
-- meaning: Without which heads does the loss of models increase most, and of what kind are these? For every study with
--          effects
WITH labelled AS (FROM head_taxonomy QUALIFY query = max(query) OVER (PARTITION BY study))
FROM head_ablation
LEFT JOIN labelled USING (study, layer, head)
SELECT study, layer, head, label, delta_loss, delta_loss_low, delta_loss_high, kl
WHERE kind = 'zero'
QUALIFY row_number() OVER (PARTITION BY study ORDER BY delta_loss DESC) <= 8
ORDER BY study, delta_loss DESC
