"""The Dagster code location: everything under ``defs`` is found and loaded. Nothing is listed here by hand.

``load_from_defs_folder`` would do the same in a checkout, but it wants a ``pyproject.toml`` above the package, which an
installed wheel has not.
"""

import dagster as dg

from dagster_project import defs as folder
from dagster_project.defs.resources import DataRoot


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, schedules, sensors and resources."""
    return dg.load_definitions_from_package_module(folder, resources={"data_root": DataRoot()})
