"""Files and places: atomic writes, locks, object stores, small Parquet tables."""
