-- grain:   one number
-- inputs:  position of attention_by_position
-- meaning: first position of the run that charts over positions show as one point: position 0 and the query's own are
--          runs of their own, the others are in at most 512 runs of equal length
CREATE MACRO run_of("position", query) AS
    CASE
        WHEN "position" IN (0, query) THEN "position"
        ELSE 1 + ("position" - 1) // greatest(1, (query + 511) // 512) * greatest(1, (query + 511) // 512)
    END
