-- grain:   one row per (study, query, layer, head)
-- inputs:  attention_rows
-- meaning: means of the numbers of attention_rows that say how many keys weights are spread over, over the sequences that have it
CREATE OR REPLACE VIEW concentration_means AS
SELECT
{{ key_names("study", "query", "layer", "head") }}
    count(*)::INTEGER AS sequences, -- number of sequences averaged
    avg(n_keys) AS n_keys, -- mean number of keys the query may attend to
{{ mean_columns(concentration) }}
FROM attention_rows
GROUP BY study, query, layer, head
