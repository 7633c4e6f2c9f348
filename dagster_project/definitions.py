"""The Dagster code location: combines the assets, jobs, schedules, sensors and resources of ``defs``."""

import dagster as dg

from dagster_project.defs.assets import assets
from dagster_project.defs.families import families_current, family, family_job
from dagster_project.defs.resources import data_root, no_values
from dagster_project.defs.schedules import all_studies_daily, studies_registered, study_job


@dg.definitions
def defs() -> dg.Definitions:
    """All assets with their checks, jobs, schedules, sensors and resources; a run is one process and holds one lock."""
    return dg.Definitions(
        assets=[*assets, family],
        jobs=[study_job, family_job],
        schedules=[all_studies_daily],
        sensors=[studies_registered, families_current],
        resources={"data_root": data_root, "io_manager": no_values},
        executor=dg.in_process_executor,
    )
