-- grain:   one row per column
-- inputs:  none
-- meaning: What do the columns about the sink mean? Every table, view and column has a comment that can be searched.
FROM duckdb_columns()
SELECT table_name, column_name, data_type, comment
WHERE NOT internal AND database_name = current_database() AND comment ILIKE '%sink%'
ORDER BY ALL
