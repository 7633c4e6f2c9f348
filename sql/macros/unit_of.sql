-- grain:   one number
-- inputs:  value_scale of value_scales
-- meaning: the length that weighted norms, and so margins, are divided by in a scale: C for 'unit', 1 for 'raw'; NULL
--          where C is 0 or unknown; any other scale is an error
CREATE MACRO unit_of(scale, value_scale) AS
    CASE scale
        WHEN 'unit' THEN nullif(value_scale::DOUBLE, 0)
        WHEN 'raw' THEN 1::DOUBLE
        ELSE error('scale must be ''unit'' or ''raw'', not ' || coalesce('''' || scale || '''', 'NULL'))
    END
