-- grain:   one row per (study, layer, head, curve)
-- inputs:  selection_counts
-- meaning: heads as points of a plane: the first two principal components of their curves of cos(s_N, v_0),
--          cos(s_N, v_L) and Recall in equal steps of ln N, from 1 to n_keys - 1, mean over sequences, at the last query;
--          a curve that a head lacks counts as the mean of the others; the measure plane_share says how much the plane
--          holds; and as three more points the curves themselves: how much of each axis is a difference in one of them.
--          Empty if all curves of heads are equal
CREATE TABLE head_plane (
{{ key_columns("study") }}
    layer SMALLINT, -- layer, from 0; NULL for a curve
    head SMALLINT, -- query head, from 0; NULL for a curve
    curve VARCHAR, -- 'cos_sink', 'cos_last' or 'recall'; NULL for a head
    x DOUBLE NOT NULL, -- place on the first axis; of a curve, the sum of the squares of its components, as a share of the axis, below 0 if the curve is smaller on average along the axis
    y DOUBLE NOT NULL -- place on the second axis; of a curve likewise
)
