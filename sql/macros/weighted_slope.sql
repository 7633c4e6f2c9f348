-- grain:   one number per group
-- inputs:  weighted_level; columns of a group: y, x, and the weight of each row; x should be centred, or the squares
--          cancel
-- meaning: slope over x of the straight line through y by weighted least squares, over the rows that have a y; 0 if
--          only one row has, NULL if none has
CREATE MACRO weighted_slope(y, x, weight) AS
    CASE
        WHEN count(y) > 1 THEN
            (sum(weight * x * y) - sum(weight * x) FILTER (WHERE y IS NOT NULL) * weighted_level(y, weight))
            / (
                sum(weight * x * x) FILTER (WHERE y IS NOT NULL)
                - sum(weight * x) FILTER (WHERE y IS NOT NULL) * sum(weight * x) FILTER (WHERE y IS NOT NULL)
                / sum(weight) FILTER (WHERE y IS NOT NULL)
            )
        WHEN count(y) = 1 THEN 0
    END
