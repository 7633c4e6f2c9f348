-- grain:   one number
-- inputs:  delta; columns of selection_counts
-- meaning: Δ/B, the margin of the selected keys over those left out (eq. 8), with the sign of Δ, in the unit of the
--          weighted norms; NULL if only the sink is selected, or B is 0
CREATE MACRO margin(a_min_in, a_max_in, a_max_out, s_in, rho_out) AS
    delta(a_min_in, a_max_out, s_in, rho_out) / nullif(a_max_in::DOUBLE + a_max_out::DOUBLE + s_in::DOUBLE, 0)
