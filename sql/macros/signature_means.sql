-- grain:   one row per (study, query, layer, head)
-- inputs:  a relation with the columns of head_signatures
-- meaning: mean of each column over the sequences that have it
CREATE MACRO signature_means(signatures) AS TABLE
SELECT
    study,
    query,
    layer,
    head,
    count(*)::INTEGER AS sequences,
    avg(norm_y_0) AS norm_y_0,
    avg(norm_y_last) AS norm_y_last,
    avg(norm_rest) AS norm_rest,
    avg(total_rest) AS total_rest,
    avg(cos_sink_level) AS cos_sink_level,
    avg(cos_sink_change) AS cos_sink_change,
    avg(cos_last_level) AS cos_last_level,
    avg(cos_last_change) AS cos_last_change
FROM query_table(signatures)
GROUP BY study, query, layer, head
