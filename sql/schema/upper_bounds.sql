-- grain:   one row per (study, sequence, query, layer, head, n, kappa)
-- inputs:  metrics store
-- meaning: the paper's upper bounds of Precision and Recall (Theorems 1-2) for each κ that the study asks for;
--          NULL where nothing but the sink is selected, all weighted norms are 0, or (scale 'unit') value_scale is 0
CREATE TABLE upper_bounds (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    n INTEGER NOT NULL, -- N, the number of selected keys
    kappa DOUBLE NOT NULL, -- κ, the constant of the tail bound (eq. 10); the paper gives it no value
    scale VARCHAR NOT NULL, -- 'unit': weighted norms divided by the row's value_scale; 'raw': as printed
    precision_upper FLOAT, -- upper bound of the expected P(r_max, N) (eq. 13); NULL: see the table
    recall_upper FLOAT -- upper bound of the expected R(r_min, N) (eq. 15); NULL: see the table
)
