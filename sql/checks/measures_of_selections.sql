-- grain:   one row per (query, layer, head, n, measure, null_model) that is not what selections or heads give
-- inputs:  separability, separability_model, selection
-- meaning: Precision, Recall, F and specificity in the comparison with nulls are the means over the first sequences of
--          the metrics of the selections, as many as are stated; every measure of the model is the mean over the heads
--          that have that n, as many as are stated; layer and head are NULL for the model (up to rounding)
WITH measured AS (
    FROM separability
    WHERE study = $study
),
selections AS (
    SELECT
        query,
        layer,
        head,
        n,
        count(*) AS sequences,
        avg(precision) AS precision,
        avg(recall) AS recall,
        avg(f_r_max) AS f_r_max,
        avg(f_r_min) AS f_r_min,
        avg(specificity) AS specificity
    FROM selection
    SEMI JOIN (SELECT DISTINCT n FROM measured) USING (n)
    WHERE study = $study AND sequence < (SELECT max(sequences) FROM measured)
    GROUP BY query, layer, head, n
),
counted AS (
    UNPIVOT selections ON precision, recall, f_r_max, f_r_min, specificity INTO NAME measure VALUE expected
),
of_heads AS (
    SELECT
        query,
        n,
        measure,
        null_model,
        count(*) AS heads,
        avg(value) AS expected,
        avg(null_value) AS expected_null,
        min(sequences) AS least_sequences,
        max(sequences) AS most_sequences
    FROM measured
    GROUP BY query, n, measure, null_model
)
SELECT query, layer, head, n, measure, null_model, measured.sequences, value, expected
FROM measured
LEFT JOIN counted USING (query, layer, head, n, measure)
WHERE
    (measure <> 'auc' AND NOT coalesce(abs(value - expected) <= 1e-6, false))
    OR counted.sequences <> measured.sequences
UNION ALL BY NAME
SELECT query, n, measure, null_model, model.sequences, value, expected
FROM (FROM separability_model WHERE study = $study) AS model
LEFT JOIN of_heads USING (query, n, measure, null_model)
WHERE
    NOT coalesce(abs(value - expected) <= 1e-6, false)
    OR NOT coalesce(abs(null_value - expected_null) <= 1e-6, false)
    OR model.heads <> of_heads.heads
    OR model.sequences <> least_sequences
    OR model.sequences <> most_sequences
