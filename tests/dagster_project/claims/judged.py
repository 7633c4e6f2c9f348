"""The tables of measures, facts and claims of made-up models, and what is read of them."""

from typing import Any

import numpy as np

from dagster_project.analysis.claims.judging import MEASURES, Twin, compute_claims
from tests.dagster_project.claims.made_up import make_evidence, make_tables

Rows = list[dict[str, Any]]
_MADE: dict[tuple[bool, str], dict[str, Rows]] = {}

ERRORS = {"similarity_mae": 0.1, "other_share": 0.5}
NOTHING = Twin("nothing", {name: np.full(8, ERRORS.get(name, 0.0)) for name in MEASURES}, {}, {})
"""A model all of whose measures are 0, but for what a model should have little of."""


def compute(twin: Twin | None = NOTHING, **changed: Any) -> dict[str, Rows]:
    """The rows of all tables of a made-up model, only read: computed once without a twin or beside ``NOTHING``."""
    asked = twin is None, repr(changed)
    if asked in _MADE and (twin is None or twin is NOTHING):
        return _MADE[asked]
    evidence = make_evidence(make_tables(**changed))
    found = {name: batch.to_pylist() for name, batch in compute_claims(evidence.connection, twin)}
    if twin is None or twin is NOTHING:
        _MADE[asked] = found
    return found


def key(rows: Rows, *names: str) -> dict[Any, dict[str, Any]]:
    """Rows by their key, which is unique."""
    found = {tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]: row for row in rows}
    assert len(found) == len(rows)
    return found


def make_twin(rows: dict[str, Rows]) -> Twin:
    """What is read of the tables of another model."""
    values = {row["measure"]: np.array(row["of_sequences"], np.float64) for row in rows["measures"]}
    ends = {row["measure"]: (row["value"], row["value_low"], row["value_high"]) for row in rows["measures"]}
    return Twin("random", values, {row["claim"]: row["verdict"] for row in rows["claims"]}, ends)
