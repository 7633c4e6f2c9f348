-- grain:   one number
-- inputs:  Precision or Recall of selection, or a bound on them
-- meaning: 2x / (1 + x), the F-score where the other of Precision and Recall is 1 by convention (eq. 4, 16, 17)
CREATE MACRO f_score(x) AS 2 * x::DOUBLE / (1 + x::DOUBLE)
