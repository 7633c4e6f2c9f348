-- grain:   one row per (quantity, label)
-- inputs:  measures; $study
-- meaning: how heads with a label of head_labels differ from all others: the measures NAME_by_label[LABEL]
SELECT
    regexp_extract(measure, '^(.*)_by_label', 1) AS quantity,
    regexp_extract(measure, '\[(.*)\]', 1) AS label,
    rows AS heads,
    sequences,
    value,
    value_low,
    value_high
FROM measures
WHERE study = $study AND contains(measure, '_by_label[')
ORDER BY quantity, label
