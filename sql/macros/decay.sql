-- grain:   one number
-- inputs:  columns of assumption_similarity or assumption_similarity_model
-- meaning: floor + (1 - floor) exp(-β k), the mean cosine at distance k by the fit of Assumption 2; the floor itself if
--          β has no upper end (status 'unbounded'); NULL without a fit
CREATE MACRO decay(distance, status, beta, floor) AS
    floor + (1 - floor) * CASE status WHEN 'unbounded' THEN 0 ELSE exp(-beta * distance) END
