-- grain:   one row per n, of the ten where the fall is steepest
-- inputs:  selection_means_model, last_query; $study
-- meaning: Where does the model's mean Recall fall fastest over ln N? A window function reads the previous N.
FROM selection_means_model
SELECT n, recall, (recall - lag(recall) OVER by_n) / ln(n / lag(n) OVER by_n) AS slope
WHERE study = $study AND query = last_query($study)
WINDOW by_n AS (ORDER BY n)
ORDER BY slope, n
LIMIT 10
