-- grain:   one row per (query, layer, head) whose mean concentration is missing, duplicated, or impossible
-- inputs:  concentration_means, attention_rows
-- meaning: every head has one row for each query, over as many sequences as it has rows of attention; shares of top keys
--          lie between 0 and 1 and sum to 1, effective numbers between 1 and the number of keys (up to rounding)
WITH wanted AS (
    SELECT query, layer, head, count(*) AS expected
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
),
found AS (
    SELECT
        *,
        top_sink_share + top_last_share + top_other_share AS tops,
        top_contributor_sink_share + top_contributor_last_share + top_contributor_other_share AS contributor_tops
    FROM concentration_means
    WHERE study = $study
)
SELECT
    query,
    layer,
    head,
    count(found.study) AS found,
    any_value(sequences) AS sequences,
    any_value(effective_keys) AS effective_keys,
    any_value(tops) AS tops
FROM found
FULL JOIN wanted USING (query, layer, head)
GROUP BY query, layer, head
HAVING
    count(found.study) <> 1
    OR count(wanted.query) <> 1
    OR bool_or(
        sequences <> expected
        OR abs(tops - 1) > 1e-9
        OR least(top_sink_share, top_last_share, top_other_share) < 0
        OR effective_keys NOT BETWEEN 1 - 1e-6 AND n_keys * (1 + 1e-6)
        OR coalesce(
            abs(contributor_tops - 1) > 1e-9
            OR least(top_contributor_sink_share, top_contributor_last_share, top_contributor_other_share) < 0
            OR effective_contributors NOT BETWEEN 1 - 1e-6 AND n_keys * (1 + 1e-6),
            false
        )
    )
