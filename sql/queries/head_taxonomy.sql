-- grain:   one row per (layer, head)
-- inputs:  taxonomy; $study, $query, $last_leads, $last_high, $sink_falls, $last_rises, $sink_comparable,
--          $spread_broad, $last_weak
-- meaning: the kind of every head under other thresholds; a threshold that is NULL has its default, see the query
--          taxonomy_thresholds
SELECT * EXCLUDE (study, query)
FROM taxonomy(
    last_leads := $last_leads,
    last_high := $last_high,
    sink_falls := $sink_falls,
    last_rises := $last_rises,
    sink_comparable := $sink_comparable,
    spread_broad := $spread_broad,
    last_weak := $last_weak
)
WHERE study = $study AND query = $query
ORDER BY layer, head
