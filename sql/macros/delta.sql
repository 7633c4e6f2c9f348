-- grain:   one number
-- inputs:  columns of selection_counts
-- meaning: Δ, by how much the smallest selected key outweighs the overlap of the keys left out with the sum (eq. 8),
--          with its sign, in the squared unit of the weighted norms; NULL if only the sink is selected
CREATE MACRO delta(a_min_in, a_max_out, s_in, rho_out) AS
    a_min_in::DOUBLE * a_min_in::DOUBLE - 2 * a_max_out::DOUBLE * s_in::DOUBLE * rho_out::DOUBLE
