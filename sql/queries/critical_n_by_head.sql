-- grain:   one row per (layer, head)
-- inputs:  critical_n; $study, $query
-- meaning: from which N on the selected keys of a head are no farther from the rest than N keys at random, up to which N
--          they stay so, and at which N they are nearest
SELECT layer, head, last_n, critical_n, critical_share, last_nearer_n, nearest_n
FROM critical_n
WHERE study = $study AND query = $query
ORDER BY layer, head
