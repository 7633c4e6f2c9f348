"""Stores of a study: tensors and metrics in Zarr, tables in DuckDB; the only package that touches files."""
