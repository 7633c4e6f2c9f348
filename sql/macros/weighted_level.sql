-- grain:   one number per group
-- inputs:  columns of a group: y, and the weight of each row
-- meaning: weighted mean of y over the rows that have a y; NULL if none has
CREATE MACRO weighted_level(y, weight) AS
    sum(weight * y) / sum(weight) FILTER (WHERE y IS NOT NULL)
