"""Studies as they are recorded in the studies file of a data root."""

from pathlib import Path

import yaml

from dagster_project.study.home import Home

TINY = {
    "model": "synthetic",
    "context_length": 48,
    "sequences": 2,
    "synthetic": {"layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8},
}
"""A study that takes a moment."""

LOST = {"model": "embedded", "corpus": "/nowhere/at/all.txt", "context_length": 32, "sequences": 2}
"""A study whose text is not there."""


def write_studies(home: Path, **studies: object) -> Home:
    """A data root with these studies and families; their file is written atomically, since a daemon may read it."""
    (home / "studies.yaml.new").write_text(yaml.safe_dump({"studies": studies}), encoding="utf-8")
    (home / "studies.yaml.new").rename(home / "studies.yaml")
    return Home(home)


def change(home: Path, **changes: object) -> None:
    """Give the recorded study ``mine`` other settings."""
    studies = yaml.safe_load((home / "studies.yaml").read_text(encoding="utf-8"))["studies"]
    write_studies(home, **studies | {"mine": studies["mine"] | changes})
