"""How long the campaigns are: as long as `.ci/run` has time for, or as long as a night where a variable says so."""

import os

NIGHTLY = bool(os.environ.get("ATTENTION_GEOMETRY_NIGHTLY"))

FLIPS = 1000 if NIGHTLY else 22
"""Bits flipped in files of a data root."""


KILLED_STUDIES = 6 if NIGHTLY else 2
"""Studies that are killed in every one of their stages, half of them in the place of another."""
