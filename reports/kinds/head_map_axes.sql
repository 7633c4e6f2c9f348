-- grain:   one row per axis of the map of heads
-- inputs:  head_plane; $study
-- meaning: the curve that makes up most of each axis, how much of it, and whether that curve is larger (1) or smaller (-1)
--          along the axis
SELECT
    axis,
    arg_max(curve, (abs(place), curve)) AS curve,
    max(abs(place)) AS share,
    sign(arg_max(place, (abs(place), curve)))::DOUBLE AS direction
FROM (FROM head_plane WHERE study = $study AND curve IS NOT NULL) UNPIVOT (place FOR axis IN (x, y))
GROUP BY axis
ORDER BY axis
