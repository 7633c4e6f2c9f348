-- grain:   one row per (layer, head)
-- inputs:  critical_n; $study, $query
-- meaning: the N from which the selected keys of a head are no farther from the rest than N random keys, the N up to
--          which this remains so, and the N at which they are nearest
SELECT layer, head, last_n, critical_n, critical_share, last_nearer_n, nearest_n
FROM critical_n
WHERE study = $study AND query = $query
ORDER BY layer, head
