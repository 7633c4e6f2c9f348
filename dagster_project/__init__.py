"""The Dagster project and the command line over it: the only package that knows all the others."""

import os

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
