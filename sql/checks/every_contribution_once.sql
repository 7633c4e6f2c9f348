-- grain:   one row per (query, layer, head) whose contributions are not those of its keys, each once, or are impossible
-- inputs:  contributions, attention_rows
-- meaning: every head has a row for every key up to the query; norms are not negative, cosines lie within -1 and 1, and
--          are 1 between a value state and itself (each up to rounding); no cosine with a sink that is not attended
WITH keys AS (
    SELECT query, layer, head, min(n_keys) AS expected, bool_and(sink_attended) AS sink_attended
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
),
found AS (
    SELECT
        query,
        layer,
        head,
        count(*) AS found,
        bit_count(bitstring_agg(position)) AS several,
        min(position) AS first_position,
        max(position) AS last_position,
        min(least(mean_norm_y, sd_norm_y)) AS least_norm,
        max(greatest(mean_norm_y, sd_norm_y)) AS largest_norm,
        max(greatest(abs(mean_cos_last), abs(mean_cos_sink))) AS largest_cosine,
        min(mean_cos_last) FILTER (WHERE position = query) AS last_with_itself,
        min(mean_cos_sink) FILTER (WHERE position = 0) AS sink_with_itself,
        count(mean_cos_sink) AS with_sink
    FROM contributions
    WHERE study = $study
    GROUP BY query, layer, head
)
SELECT query, layer, head, found, expected, first_position, last_position, least_norm, largest_norm, largest_cosine
FROM found
FULL JOIN keys USING (query, layer, head)
WHERE
    found IS DISTINCT FROM expected
    OR several <> found
    OR last_position <> query
    OR first_position <> query + 1 - expected
    OR least_norm < 0
    OR NOT isfinite(largest_norm)
    OR largest_cosine > 1 + 1e-6
    OR abs(last_with_itself - 1) > 1e-5
    OR abs(sink_with_itself - 1) > 1e-5
    OR (with_sink > 0 AND NOT sink_attended)
