-- grain:   one row per comparison with a null whose measure no selection can have, or whose interval is inconsistent
-- inputs:  separability, separability_model
-- meaning: measures and those of their nulls lie between 0 and 1; the difference is measure minus null; the ends of its
--          interval enclose it, lie between -1 and 1, and exist together with the standard error, for a head exactly if
--          there are several sequences; layer and head are NULL for the model (up to rounding)
SELECT query, layer, head, n, measure, null_model, sequences, value, null_value, difference, se, low, high
FROM (FROM separability UNION ALL BY NAME FROM separability_model)
WHERE
    study = $study
    AND (
        NOT (value >= -1e-6 AND value <= 1 + 1e-6 AND null_value >= -1e-6 AND null_value <= 1 + 1e-6)
        OR NOT abs(value - null_value - difference) <= 1e-9
        OR NOT (low <= difference + 1e-9 AND high >= difference - 1e-9 AND low >= -1 - 1e-9 AND high <= 1 + 1e-9)
        OR NOT (se >= 0 AND isfinite(se))
        OR (low IS NULL) <> (high IS NULL)
        OR (low IS NULL) <> (se IS NULL)
        OR (low IS NULL) < (sequences = 1)
        OR (head IS NOT NULL AND (low IS NULL) > (sequences = 1))
        OR draws < 1
    )
