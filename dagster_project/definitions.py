"""The Dagster code location: everything under ``defs`` is found and loaded. Nothing is listed here by hand."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, schedules, sensors and resources."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
