-- grain:   one row per parameter, in the paper's order
-- inputs:  parameter_effects; $study
-- meaning: Table 1: effect of each parameter on the printed lower bounds, for data drawn from the assumptions, and the
--          paper's arrow (1 improves, -1 weakens, NULL mixed)
SELECT * EXCLUDE (study)
FROM parameter_effects
WHERE study = $study
ORDER BY list_position(['d', 'L', 'N', 'a_0', 'a_min_in', 'a_max_out', 'beta', 'eta', 'omega', 'T_1', 'T_2'], parameter)
