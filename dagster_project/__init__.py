"""The Dagster project and the command line over it: the only package that knows all the others."""

import os

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
# PyTorch's threads sleep while they wait: spinning, they keep a busy machine from the thread that they wait for
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
