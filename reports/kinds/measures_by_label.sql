-- grain:   one row per (quantity, label)
-- inputs:  measures, head_labels; $study
-- meaning: how heads with a label of head_labels differ from all others: the measures NAME_by_label[LABEL]; the names
--          LAYER.HEAD of up to four heads with the largest share of the label
SELECT
    regexp_extract(measure, '^(.*)_by_label', 1) AS quantity,
    regexp_extract(measure, '\[(.*)\]', 1) AS label,
    rows AS heads,
    sequences, value, value_low, value_high, strongest
FROM measures
LEFT JOIN (
    SELECT label, array_to_string(max_by(layer || '.' || head, share, 4), ', ') AS strongest
    FROM head_labels
    WHERE study = $study
    GROUP BY label
) AS named ON named.label = regexp_extract(measure, '\[(.*)\]', 1)
WHERE study = $study AND contains(measure, '_by_label[')
ORDER BY quantity, label
