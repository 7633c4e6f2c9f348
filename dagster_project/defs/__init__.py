"""Dagster definitions, one file per step or concept; bodies call ``pipeline``, ``landing`` or ``reporting`` alone."""
