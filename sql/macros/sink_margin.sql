-- grain:   one number
-- inputs:  columns of selection_counts
-- meaning: Δ_0/B, the margin of the sink (eq. 8, where ρ_in reads ρ_out), with the sign of Δ_0, in the unit of the
--          weighted norms; NULL if the sink is not selected, or nothing else is, or B is 0
CREATE MACRO sink_margin(a_0, a_max_in, a_max_out, s_in, rho_out) AS
    (a_0::DOUBLE * a_0::DOUBLE - (s_in::DOUBLE * rho_out::DOUBLE) * (s_in::DOUBLE * rho_out::DOUBLE))
    / nullif(a_max_in::DOUBLE + a_max_out::DOUBLE + s_in::DOUBLE, 0)
