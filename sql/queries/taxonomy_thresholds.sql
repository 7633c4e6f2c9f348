-- grain:   one row per threshold
-- inputs:  taxonomy_thresholds, taxonomy_sensitivity; $study, $query
-- meaning: what each threshold of the taxonomy means, and how many of the heads would have another label if it, and no
--          other, were 10 % lower (changed_below) or higher (changed_above)
WITH stated AS (
    UNPIVOT (FROM taxonomy_thresholds()) ON * INTO NAME threshold VALUE value
),
moved AS (
    SELECT
        threshold,
        any_value(changed) FILTER (WHERE factor = 0.9) AS changed_below,
        any_value(changed) FILTER (WHERE factor = 1.1) AS changed_above,
        any_value(heads) AS heads
    FROM taxonomy_sensitivity
    WHERE study = $study AND query = $query
    GROUP BY threshold
)
SELECT threshold, meaning, value, changed_below, changed_above, heads
FROM (
    VALUES
        (1, 'last_leads', 'Retriever: the last token contributes at least so many times the larger of what the sink and '
            || 'the rest contribute'),
        (2, 'last_high', 'Retriever: the cosine of the output with the last token''s value state is at least so high '
            || 'from the first N to the last'),
        (3, 'sink_falls', 'Mixer: the cosine of the output with the sink''s value state falls by at least so much from '
            || 'the first N to the last'),
        (4, 'last_rises', 'Mixer: the cosine with the last token''s value state rises by at least so much'),
        (5, 'sink_comparable', 'Reset: the sink contributes at least so many times the larger of what the last token '
            || 'and the rest contribute, or else spread_broad holds'),
        (6, 'spread_broad', 'Reset: the rest makes up at least this share of all lengths that are added, or else '
            || 'sink_comparable holds'),
        (7, 'last_weak', 'Reset: the cosine of the output with the last token''s value state is at most so high on '
            || 'average over ln N')
) AS explained (place, threshold, meaning)
JOIN stated USING (threshold)
LEFT JOIN moved USING (threshold)
ORDER BY place
