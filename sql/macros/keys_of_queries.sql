-- grain:   one row per query
-- inputs:  attention_rows; name of a study
-- meaning: the size of each context of a study: n_keys, the largest number of keys of a head
CREATE MACRO keys_of_queries(of_study) AS TABLE
SELECT query, max(n_keys) AS n_keys
FROM attention_rows
WHERE study = of_study
GROUP BY query
