"""The DuckDB warehouse: landing, reading, ad hoc SQL and its documentation."""
