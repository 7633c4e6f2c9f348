-- grain:   one row per (family, layer)
-- inputs:  onsets
-- meaning: In which layers do sinks appear over the members of a family, such as the steps of a training, and between
--          which members?
SELECT
    family, layer,
    any_value(state) FILTER (head IS NULL) AS layer_state,
    any_value(last_below) FILTER (head IS NULL) AS layer_last_below,
    any_value(first_above) FILTER (head IS NULL) AS layer_first_above,
    count(*) FILTER (head IS NOT NULL AND state = 'appears') AS heads_appear,
    count(*) FILTER (head IS NOT NULL AND state = 'undecided') AS heads_undecided,
    count(head) AS heads
FROM onsets
WHERE quantity = 'sink_weight' AND layer IS NOT NULL
GROUP BY family, layer
ORDER BY family, layer
