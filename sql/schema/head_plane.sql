-- grain:   one row per (study, layer, head)
-- inputs:  selection_counts
-- meaning: heads as points of a plane: the first two principal components of their curves of cos(s_N, v_0),
--          cos(s_N, v_L) and Recall in equal steps of ln N, from 1 to n_keys - 1, mean over sequences, at the last query;
--          a curve that a head lacks counts as the mean of the others; the measure plane_share says how much the plane
--          holds; empty if all curves are equal
CREATE TABLE head_plane (
{{ key_columns("study", "layer", "head") }}
    x DOUBLE NOT NULL, -- place on the first axis
    y DOUBLE NOT NULL -- place on the second axis
)
