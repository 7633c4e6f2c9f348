-- grain:   one number
-- inputs:  columns of assumption_weights or assumption_weights_model
-- meaning: weight of a position by the fitted four phases of Assumption 3; NULL if a parameter that it needs is missing
CREATE MACRO phase_weight("position", p_sink, p_base, eta, eta_growth, omega, t_1, t_2) AS
    CASE
        WHEN "position" = 0 THEN p_sink
        WHEN "position" <= t_1 THEN p_base
        WHEN "position" <= t_2 THEN p_base * (1 + eta * cos(omega * "position"))
        WHEN "position" > t_2 THEN p_base * exp(eta_growth * ("position" - t_2))
    END
