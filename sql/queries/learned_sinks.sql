-- grain:   one row per (layer, head)
-- inputs:  attention_rows; $study, $query
-- meaning: weight that each head's learned sink takes away from the keys, over sequences; 0 for a head without one;
--          sd_learned_sink: standard deviation over sequences (divisor: their number)
SELECT
    layer,
    head,
    count(*) AS sequences,
    avg(learned_sink::DOUBLE) AS mean_learned_sink,
    stddev_pop(learned_sink::DOUBLE) AS sd_learned_sink
FROM attention_rows
WHERE study = $study AND query = $query
GROUP BY layer, head
ORDER BY layer, head
