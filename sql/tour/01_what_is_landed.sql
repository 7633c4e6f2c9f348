-- grain:   one row per study
-- inputs:  studies, model_sizes, assumption_weights_model
-- meaning: Which studies have landed, how large are their models, and at which positions are their queries?
FROM studies
JOIN model_sizes USING (study)
JOIN (FROM assumption_weights_model SELECT study, list(query ORDER BY query) AS queries GROUP BY ALL) USING (study)
SELECT study, model, corpus, context_length, sequences, layers, all_heads, all_kv_heads, head_dim, queries
ORDER BY study
