-- grain:   one row per (family, quantity, layer, head)
-- inputs:  family_trends, family_trends_model
-- meaning: the member from which on a quantity exceeds a threshold, and the members between which this happens: the last
--          whose whole interval lies at or below the threshold, and the first from then on whose whole interval lies above.
--          Intervals are not adjusted for the number of heads
CREATE TABLE onsets (
{{ key_columns("family") }}
    quantity VARCHAR NOT NULL, -- as in family_trends_model
    layer SMALLINT, -- layer, from 0; NULL for the whole model
    head SMALLINT, -- query head, from 0; NULL for the layer or the model
    threshold DOUBLE NOT NULL, -- what the quantity has to exceed
    state VARCHAR NOT NULL, -- 'appears', 'always' (in all members), 'never' (not in the last one), or 'undecided' if an interval that decides it holds the threshold
    study VARCHAR, -- the first member from which on the estimate exceeds the threshold; NULL unless it appears
    last_below VARCHAR, -- the last member before it whose interval lies at or below the threshold
    first_above VARCHAR -- the first member from it on whose interval lies above the threshold
)
