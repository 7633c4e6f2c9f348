"""Dagster's records of this project: the instance, its partitions, and runs whose process was killed."""
