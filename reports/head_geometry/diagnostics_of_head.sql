-- grain:   one row per n
-- inputs:  selection_means, log_grid; $study, $query, $layer, $head
-- meaning: norm of s_N, also without the sink's and the last token's part, and its cosines with their value states, mean
--          over sequences (Figure 7); n: at most 161 values, evenly spaced on a log axis
WITH of_head AS (FROM selection_means WHERE study = $study AND query = $query AND layer = $layer AND head = $head)
SELECT n, sequences, norm_s, norm_s_without_sink, norm_s_without_last, cos_sink, cos_last
FROM of_head
SEMI JOIN log_grid((SELECT max(n) FROM of_head)) AS grid ON n = point
ORDER BY n
