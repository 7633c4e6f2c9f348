-- grain:   one row per study
-- inputs:  studies, heads
-- meaning: the number of heads in all layers together, and the layers that have heads; layers may differ in size, and
--          those without softmax attention have no heads; a study without rows in heads has the sizes in studies
CREATE OR REPLACE VIEW model_sizes AS
WITH by_study AS (
    SELECT
        study,
        list_sort(list(DISTINCT layer)) AS attention_layers,
        count(*) AS all_heads,
        count(DISTINCT (layer, kv_head)) AS all_kv_heads,
        min(head_dim) AS least_head_dim
    FROM heads
    GROUP BY study
)
SELECT
{{ key_names("study") }}
    coalesce(attention_layers, range(layers)) AS attention_layers, -- layers with softmax attention, ascending
    coalesce(all_heads, layers * studies.heads) AS all_heads, -- number of query heads in all layers
    coalesce(all_kv_heads, layers * kv_heads) AS all_kv_heads, -- number of KV heads in all layers
    coalesce(
        by_study.all_heads = layers * studies.heads
        AND by_study.all_kv_heads = layers * kv_heads
        AND least_head_dim = head_dim,
        true
    ) AS alike, -- whether every layer has attention of the sizes in studies
FROM studies
LEFT JOIN by_study USING (study)
