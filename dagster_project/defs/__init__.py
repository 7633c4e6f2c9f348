"""Dagster definitions: assets, resources, schedules."""
