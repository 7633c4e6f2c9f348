"""The assets of a study and the functions that compute them; no Dagster, no command line."""
