-- grain:   one row per (study, axis, curve)
-- inputs:  selection_counts
-- meaning: what the axes of head_plane are: how much of each is a difference in each of the three curves
CREATE TABLE head_plane_axes (
{{ key_columns("study") }}
    axis VARCHAR NOT NULL, -- 'x' or 'y'
    curve VARCHAR NOT NULL, -- 'cos_sink', 'cos_last' or 'recall'
    share DOUBLE NOT NULL, -- sum of the squares of its components, as a share of the axis [0, 1]
    direction DOUBLE NOT NULL -- 1 if the curve is larger on average along the axis, -1 if smaller, 0 if neither [-1, 1]
)
