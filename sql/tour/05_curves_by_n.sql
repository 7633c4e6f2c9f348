-- grain:   one row per n that is a power of two
-- inputs:  selection_means_model, last_query; $study
-- meaning: How do the model's mean Precision and Recall change with N, and how precise are these means (Figure 5)?
FROM selection_means_model
SELECT n, heads, COLUMNS('^(precision|recall)')
WHERE study = $study AND query = last_query($study) AND n & (n - 1) = 0
ORDER BY n
