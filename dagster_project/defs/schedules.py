"""The job over all assets of a study, its daily schedule (off by default), and the sensor that registers new studies.

Keep out: which studies there are (``dagster_project.studies``).
https://docs.dagster.io/guides/automate/schedules
"""

from collections.abc import Iterator

import dagster as dg

from dagster_project.home import Home
from dagster_project.registration import register_studies

study_job = dg.define_asset_job(
    "study",
    selection=dg.AssetSelection.groups("study"),
    description="Everything about one study: tensors, metrics, tables and report.",
)


@dg.schedule(job=study_job, cron_schedule="0 3 * * *", default_status=dg.DefaultScheduleStatus.STOPPED)
def all_studies_daily(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Materialise every study, each in a run of its own."""
    for name in register_studies(context.instance, Home.from_environment()):
        yield dg.RunRequest(run_key=f"{name}-{context.scheduled_execution_time:%Y-%m-%dT%H:%M}", partition_key=name)


@dg.sensor(job=study_job, default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=30)
def studies_registered(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Make every study of the studies files a partition; starts no run."""
    names = register_studies(context.instance, Home.from_environment())
    return dg.SkipReason(f"{len(names)} studies are registered")
