-- grain:   one row per (study, query, threshold, factor)
-- inputs:  kinds_moved, head_taxonomy
-- meaning: how kinds change when one threshold of the taxonomy is changed by 10 %, halved or doubled, and all others
--          are fixed: how far 'Other' depends on thresholds that the paper does not give
CREATE OR REPLACE VIEW taxonomy_sensitivity AS
SELECT
{{ key_names("study", "query") }}
    threshold, -- name of the threshold, a parameter of the macro taxonomy
    factor, -- 0.5, 0.9, 1.1 or 2
    any_value(kinds_moved.value) AS value, -- the threshold times the factor
    count(*)::INTEGER AS heads, -- number of heads
    (count(*) FILTER (WHERE kinds_moved.label <> head_taxonomy.label))::INTEGER AS changed, -- number of those whose label differs from that in head_taxonomy
    avg(kinds_moved.other_share) AS other_share, -- share of sequences and heads that meet no rule
FROM kinds_moved
JOIN head_taxonomy USING (study, query, layer, head)
GROUP BY study, query, threshold, factor
