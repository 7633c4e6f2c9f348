"""Heads that no assumption fits, from tensors to the report: a status and NULL, never a crash or a silent number."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project import pipeline
from dagster_project.home import Home
from dagster_project.studies import Study
from dagster_project.summaries import STEPS
from storage.arrays import TENSORS
from storage.sequences import SequenceStore
from storage.warehouse import connect

NAME = "awkward"
PROVENANCE = {
    "study": NAME,
    "settings": {"model": {"id": "embedded"}, "corpus": {"id": "embedded"}, "dtype": "float32"},
    "inputs": {"model": {"sha256": "0"}, "corpus": {"documents_read": 1, "documents_skipped": 0}},
    "versions": {"device": "cpu"},
}


def finished(root: Path, *, keys: int, first_key: int = 0, sequences: int = 3, values: Any = None) -> Home:
    """A data root with a study of drawn tensors, landed and reported; layer 0 has two heads of two KV heads.

    ``values`` changes the value states, (kv_head, key, head_dim), in place. Head 1 puts all weight on one token.
    """
    home, rng = Home(root), np.random.default_rng(3)
    home.prepare()
    study = Study.model_validate(
        {"model": "embedded", "corpus": "embedded", "context_length": keys, "sequences": sequences}
    )
    sizes = {"sequence": sequences, "layer": 1, "head": 2, "kv_head": 2, "key": keys, "head_dim": 4}
    store = SequenceStore.resume(home.tensors(NAME), TENSORS, sizes, PROVENANCE)
    for sequence in range(sequences):
        weights = np.zeros((1, 2, keys), np.float32)
        weights[0, 0, first_key:] = rng.dirichlet(np.ones(keys - first_key))
        weights[0, 1, keys - 1] = 1
        states = rng.standard_normal((1, 2, keys, 4)).astype(np.float32)
        if values is not None:
            values(states[0])
        tokens, first = np.arange(keys, dtype=np.int32), np.full(1, first_key, np.int32)
        store.write(sequence, {"attention": weights, "values": states, "tokens": tokens, "first_key": first})
    pipeline.measure(home, NAME, study)
    for step in STEPS.values():
        pipeline.summarise(home, NAME, study, step)
    landing = pipeline.land_study(home, NAME, study)
    assert landing.published, landing.violations
    assert pipeline.write_study_report(home, NAME, study).charts > 0
    pipeline.judge_claims(home, NAME)
    return home


def asked(home: Home, query: str) -> list[dict[str, Any]]:
    with closing(connect(home.warehouse)) as connection:
        rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


def test_all_weight_on_one_token(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24)
    row = asked(home, "FROM assumption_weights WHERE head = 1")[0]
    assert (row["status"], row["variant"], row["p_base"], row["t_1"]) == ("no_weight", None, None, None)
    assert (row["positions"], row["zero_positions"], row["p_sink"]) == (0, 22, 0)
    assert asked(home, "FROM selection_regimes WHERE head = 1") == []
    assert asked(home, "SELECT count(*) AS n FROM elbows WHERE status = 'ok' OR elbow_n IS NULL") == [{"n": 2}]


def test_value_states_of_norm_0(tmp_path: Path) -> None:
    def silence(states: np.ndarray) -> None:
        states[0] = 0

    home = finished(tmp_path, keys=24, values=silence)
    row = asked(home, "FROM assumption_norms WHERE kv_head = 0")[0]
    assert (row["status"], row["c"], row["lambda_sink"], row["cv_of_mean_norm"]) == ("zero", 0, None, None)
    row = asked(home, "FROM assumption_similarity WHERE kv_head = 0")[0]
    assert (row["status"], row["beta"], row["mae"], row["preferred"], row["rho_0"]) == ("undefined", *[None] * 4)
    row = asked(home, "FROM bound_means WHERE head = 0 AND family = 'printed' AND n = 4")[0]
    assert (row["precision_lower"], row["recall_upper"], row["margin"]) == (None, None, None)


def test_constant_cosines(tmp_path: Path) -> None:
    def align(states: np.ndarray) -> None:
        states[0] = np.arange(1, 25)[:, None] * np.ones(4)
        states[1, 1:] = np.where(np.arange(4) == np.arange(1, 24)[:, None] % 4, 1, 0)  # cosine 1 or 0 by distance

    home = finished(tmp_path, keys=24, values=align)
    row = asked(home, "FROM assumption_similarity WHERE kv_head = 0")[0]
    assert (row["status"], row["beta"], row["status_floor"], row["floor"]) == ("constant", 0, "constant", None)
    assert row["rho_0"] == pytest.approx(1)


@pytest.mark.parametrize("keys", [2, 3, 5])
def test_contexts_too_short_for_a_phase(tmp_path: Path, keys: int) -> None:
    home = finished(tmp_path, keys=keys)
    found = asked(home, "SELECT DISTINCT status, variant, p_base FROM assumption_weights")
    assert found == [{"status": "too_short", "variant": None, "p_base": None}]
    status = asked(home, "SELECT DISTINCT status, beta FROM assumption_similarity")
    if keys < 5:
        assert status == [{"status": {2: "undefined", 3: "too_short"}[keys], "beta": None}]
    assert len(asked(home, "FROM selection_means")) == 2 * (keys - 1)
    assert asked(home, "FROM parameter_effects") == []


def test_a_window_without_sink(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24, first_key=4)
    rows = asked(home, "SELECT status, p_sink, p_sink_se, t_1 FROM assumption_weights WHERE head = 0")
    assert rows[0]["status"] == "ok"
    assert (rows[0]["p_sink"], rows[0]["p_sink_se"]) == (None, None)
    assert asked(home, "SELECT p_sink FROM assumption_weights_model") == [{"p_sink": None}]
    assert asked(home, "SELECT supported FROM claims WHERE claim = 'sink_dominates'") == [{"supported": None}]


def test_a_window_of_one_key_leaves_nothing_to_select(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=12, first_key=11)
    for table in ("selection_means", "bound_means", "elbows", "selection_regimes"):
        assert asked(home, f"FROM {table}") == []
    assert asked(home, "SELECT DISTINCT status FROM assumption_weights") == [{"status": "too_short"}]


def test_one_sequence_has_no_uncertainty(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24, sequences=1)
    for table in ("assumption_norms", "assumption_similarity", "assumption_weights", "selection_means"):
        columns = [name for name in asked(home, f"FROM {table} LIMIT 1")[0] if name.endswith(("_se", "_low", "_high"))]
        assert columns
        for name in columns:
            assert asked(home, f"SELECT count({name}) AS known FROM {table}") == [{"known": 0}], name
    provenance = json.loads(asked(home, "SELECT provenance FROM studies")[0]["provenance"])
    assert provenance["metrics"]["metrics_version"] == pipeline.METRICS_VERSION
