"""The tables of measures, facts and claims of made-up models, and what is read of them."""

from copy import deepcopy
from typing import Any
from unittest import mock

import numpy as np

from dagster_project.analysis.claims import effects
from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.judging import MEASURES, Twin, compute_claims, measure_study, subtract_twin
from tests.dagster_project.claims.made_up import make_evidence, make_tables

Rows = list[dict[str, Any]]
_MADE: dict[tuple[bool, str], dict[str, Rows]] = {}
_MEASURED: dict[str, tuple[Evidence, dict[str, Sample], Rows]] = {}

ERRORS = {"similarity_mae": 0.1, "other_share": 0.5}
NOTHING = Twin("nothing", {name: np.full(8, ERRORS.get(name, 0.0)) for name in MEASURES}, {}, {})
"""A model all of whose measures are 0, but for what a model should have little of."""


def compute(twin: Twin | None = NOTHING, **changed: Any) -> dict[str, Rows]:
    """The rows of all tables of a made-up model, only read: computed once without a twin or beside ``NOTHING``."""
    asked = twin is None, repr(changed)
    if asked in _MADE and (twin is None or twin is NOTHING):
        return _MADE[asked]
    evidence, known, associated = _measure(changed)
    samples = deepcopy(known)  # what is drawn is drawn on
    samples |= {} if twin is None else subtract_twin(samples, twin)
    judging = "dagster_project.analysis.claims.judging"
    with (
        mock.patch(f"{judging}.measure_study", return_value=samples),
        mock.patch(f"{judging}.effects.correlate_losses", return_value=associated),
    ):
        found = {name: batch.to_pylist() for name, batch in compute_claims(evidence.connection, twin)}
    if twin is None or twin is NOTHING:
        _MADE[asked] = found
    return found


def _measure(changed: dict[str, Any]) -> tuple[Evidence, dict[str, Sample], Rows]:
    """What is measured of a made-up model, and how its losses are associated, whatever it is compared with."""
    asked = repr(changed)
    if asked not in _MEASURED:
        evidence = make_evidence(make_tables(**changed))
        _MEASURED[asked] = evidence, measure_study(evidence, None), list(effects.correlate_losses(evidence))
    return _MEASURED[asked]


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
