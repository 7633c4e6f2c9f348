-- grain:   one row per axis of the map of heads
-- inputs:  head_plane_axes; $study
-- meaning: the curve that makes up most of each axis, how much of it, and whether that curve is larger (1) or smaller (-1)
--          along the axis
SELECT
    axis,
    arg_max(curve, (share, curve)) AS curve,
    max(share) AS share,
    arg_max(direction, (share, curve)) AS direction
FROM head_plane_axes
WHERE study = $study
GROUP BY axis
ORDER BY axis
