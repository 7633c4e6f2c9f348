"""Zarr stores of tensors and metrics, written one sequence at a time."""
