-- grain:   one row per row of the signatures and row of the thresholds
-- inputs:  a relation with the norms and cosines of head_signatures, and one with the columns of taxonomy_thresholds
-- meaning: label, margin and scores by the rules of Section 4.2, beside all columns of both but the thresholds; a score
--          is by how much the narrowest condition of a rule is met, below 0 by how much the worst is missed; what is NULL
--          (a hidden sink, a vector of norm 0, one key) counts as 0
CREATE MACRO label_heads(signatures, thresholds) AS TABLE
WITH known AS (
    SELECT
        *,
        coalesce(norm_y_0, 0) AS known_y_0,
        nullif(known_y_0 + norm_y_last + norm_rest, 0) AS total_share,
        nullif(known_y_0 + norm_y_last + total_rest, 0) AS total_spread,
        coalesce(known_y_0 / total_share, 0) AS sink_share,
        coalesce(norm_y_last / total_share, 0) AS last_share,
        coalesce(norm_rest / total_share, 0) AS rest_share,
        coalesce(total_rest / total_spread, 0) AS spread,
        coalesce(cos_sink_change, 0) AS known_sink_change,
        coalesce(cos_last_level, 0) AS known_last_level,
        coalesce(cos_last_change, 0) AS known_last_change
    FROM query_table(signatures)
),
scored AS (
    SELECT
        *,
        least(
            last_share - stated.last_leads * greatest(sink_share, rest_share),
            known_last_level - abs(known_last_change) / 2 - stated.last_high
        ) AS retriever_score,
        least(
            last_share - least(sink_share, rest_share),
            greatest(sink_share, rest_share) - last_share,
            -known_sink_change - stated.sink_falls,
            known_last_change - stated.last_rises
        ) AS mixer_score,
        least(
            greatest(
                sink_share - stated.sink_comparable * greatest(last_share, rest_share),
                spread - stated.spread_broad
            ),
            stated.last_weak - known_last_level
        ) AS reset_score
    FROM known, query_table(thresholds) AS stated
)
SELECT
    * EXCLUDE (
        known_y_0, total_share, total_spread, known_sink_change, known_last_level, known_last_change,
        {{ thresholds | map(attribute="name") | join(", ") }}
    ),
    greatest(retriever_score, mixer_score, reset_score) AS best,
    CASE best WHEN retriever_score THEN 'Retriever' WHEN mixer_score THEN 'Mixer' ELSE 'Reset' END AS label,
    best >= 0 AS fits_rule,
    best - greatest(
        least(retriever_score, mixer_score), least(greatest(retriever_score, mixer_score), reset_score)
    ) AS margin
FROM scored
