-- grain:   one row per layer
-- inputs:  head_taxonomy, last_query; $study
-- meaning: How many heads of each kind does each layer have, and how many of none (Figure 8)? PIVOT turns labels into
--          columns.
PIVOT (FROM head_taxonomy WHERE study = $study AND query = last_query($study))
ON label IN ('Retriever', 'Mixer', 'Reset', 'Other')
USING count(*)
GROUP BY layer
ORDER BY layer
