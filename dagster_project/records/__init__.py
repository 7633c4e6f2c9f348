"""Dagster's records as this project keeps them: instance, partitions, and runs that died."""
