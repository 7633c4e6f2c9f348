-- grain:   one row per mean that no selection can have, or without an interval around it
-- inputs:  selection_means, selection_means_model
-- meaning: every mean lies between 0 and 1, that of Precision and F(r_max) above 0; the ends of an interval are in order,
--          between 0 and 1, and exist exactly if there are several sequences; layer and head are NULL for the model (up
--          to rounding)
SELECT query, layer, head, n, sequences, {{ means | join(", ") }}
FROM (FROM selection_means UNION ALL BY NAME FROM selection_means_model)
WHERE
    study = $study
    AND (
        NOT (precision > 0 AND f_r_max > 0)
{% for metric in means %}
        OR NOT ({{ metric }} >= -1e-6 AND {{ metric }} <= 1 + 1e-6)
        OR NOT ({{ metric }}_ci_low >= -1e-6 AND {{ metric }}_ci_high <= 1 + 1e-6 AND {{ metric }}_ci_low <= {{ metric }}_ci_high)
        OR ({{ metric }}_ci_low IS NULL) <> (sequences = 1)
        OR ({{ metric }}_ci_high IS NULL) <> (sequences = 1)
{% endfor %}
    )
