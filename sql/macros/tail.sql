-- grain:   one number
-- inputs:  margin or sink_margin, head_dim of heads
-- meaning: exp(-κ d margin²), the tail bound of eq. 12 and 14, for a margin above 0; 1, a probability's trivial bound,
--          for any other; NULL without a margin or head_dim
CREATE MACRO tail(margin, head_dim, kappa) AS
    CASE
        WHEN margin > 0 THEN exp(-kappa::DOUBLE * head_dim * margin * margin)
        WHEN margin <= 0 AND head_dim IS NOT NULL THEN 1::DOUBLE
    END
