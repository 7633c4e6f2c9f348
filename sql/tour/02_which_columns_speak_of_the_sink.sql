-- grain:   one row per column
-- inputs:  none
-- meaning: What do the columns mean that speak of the sink? Every table, view and column has a comment to search.
FROM duckdb_columns()
SELECT table_name, column_name, data_type, comment
WHERE NOT internal AND database_name = current_database() AND comment ILIKE '%sink%'
ORDER BY ALL
