"""Dagster definitions, one file per step or concept; bodies call ``dagster_project.pipeline`` and nothing else."""
