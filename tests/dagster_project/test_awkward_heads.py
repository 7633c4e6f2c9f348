"""Heads that no assumption fits, from tensors to the report: a status and NULL, never a crash or a silent number."""

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.metrics import METRICS_VERSION
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.warehouse.connection import connect
from storage.zarr.arrays import build_tensor_specs
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making

NAME = "awkward"
PROVENANCE = {
    "study": NAME,
    "settings": {"model": {"id": "embedded"}, "corpus": {"id": "embedded"}, "dtype": "float32"},
    "inputs": {"model": {"sha256": "0"}, "corpus": {"documents_read": 1, "documents_skipped": 0}},
    "versions": {"device": "cpu"},
}


def finished(
    root: Path,
    *,
    keys: int,
    first_key: int = 0,
    sequences: int = 3,
    values: Any = None,
    weights: Any = None,
    heads: int = 2,
    before: tuple[int, ...] = (),
) -> Home:
    """A data root with a study of drawn tensors, landed and reported; the one layer has a KV head for every head.

    ``values`` changes the value states, (kv_head, key, head_dim), in place, and ``weights`` those of the last query,
    (head, key). ``before`` are queries before the last one, whose window is as long. Head 1 puts all weight on one
    token.
    """
    home, rng, queries = Home(root), np.random.default_rng(3), np.array([*before, keys - 1])
    home.prepare()
    study = Study.model_validate(
        {
            "model": "embedded",
            "corpus": "embedded",
            "context_length": keys,
            "sequences": sequences,
            "queries": queries.tolist(),
        }
    )
    first = np.maximum(queries + 1 - (keys - first_key), 0)
    sizes = {"sequence": sequences, "query": len(queries), "layer": 1, "head": heads, "kv_head": heads, "key": keys}
    specs = build_tensor_specs(values="float32", computed="float32", sink_measure=True, probe=True)
    store = SequenceStore.resume(home.tensors(NAME), specs, sizes | {"head_dim": 4}, PROVENANCE)
    for sequence in range(sequences):
        drawn = np.zeros((len(queries), 1, heads, keys), np.float32)
        for row, start, query in zip(drawn, first, queries, strict=True):
            row[0, 0, start : query + 1] = rng.dirichlet(np.ones(query + 1 - start))
            row[0, 1:, query] = 1
        if weights is not None:
            weights(drawn[-1, 0])
        states = rng.standard_normal((1, heads, keys, 4)).astype(np.float32)
        if values is not None:
            values(states[0])
        arrays = {
            "attention": drawn,
            "values": states,
            "tokens": np.arange(keys, dtype=np.int32),
            "first_key": first[:, None].astype(np.int32),
            "query_position": queries.astype(np.int32),
            "learned_sink": np.zeros(drawn.shape[:-1], np.float32),
            "batch": np.array(1, np.int32),
        }
        store.write(sequence, arrays)
    making.finish(home, NAME, study)
    return home


def asked(home: Home, query: str) -> list[dict[str, Any]]:
    with closing(connect(home.warehouse)) as connection:
        rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


@pytest.mark.long
def test_all_weight_on_one_token(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24)
    row = asked(home, "FROM assumption_weights WHERE head = 1")[0]
    assert (row["status"], row["variant"], row["p_base"], row["t_1"]) == ("no_weight", None, None, None)
    assert (row["positions"], row["zero_positions"], row["p_sink"]) == (0, 22, 0)
    assert asked(home, "FROM selection_regimes WHERE head = 1") == []
    assert asked(home, "SELECT count(*) AS n FROM elbows WHERE status = 'ok' OR elbow_n IS NULL") == [{"n": 2}]


@pytest.mark.long
@pytest.mark.parametrize(("keys", "variations"), [(2, 0), (3, 2)])
def test_the_norm_of_one_key_varies_over_nothing(tmp_path: Path, keys: int, variations: int) -> None:
    home = finished(tmp_path, keys=keys)
    counted = ", ".join(f"count({name})" for name in ("cv_of_mean_norm", "cv_within_sequence", "cv_of_expected_norm"))
    assert asked(home, f"SELECT [{counted}] AS known FROM assumption_norms") == [{"known": [variations] * 3}]
    stable = "SELECT count(value) AS judged FROM claim_parts WHERE claim LIKE 'norms_stable%'"
    assert asked(home, stable) == [{"judged": variations}]


@pytest.mark.long
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


@pytest.mark.long
def test_a_window_without_sink(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24, first_key=4)
    rows = asked(home, "SELECT status, p_sink, p_sink_low, t_1 FROM assumption_weights WHERE head = 0")
    assert rows[0]["status"] == "ok"
    assert (rows[0]["p_sink"], rows[0]["p_sink_low"]) == (None, None)
    assert asked(home, "SELECT p_sink FROM assumption_weights_model") == [{"p_sink": None}]
    assert asked(home, "SELECT verdict FROM claims WHERE claim = 'sink_dominates'") == [{"verdict": "not testable"}]


@pytest.mark.long
def test_queries_that_see_next_to_nothing_beside_one_that_sees_much(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24, first_key=4, before=(1, 3, 19, 20))
    found = asked(
        home, "SELECT query, count(*) AS rows, max(n) AS n FROM selection_means GROUP BY query ORDER BY query"
    )
    assert [(row["query"], row["rows"], row["n"]) for row in found] == [
        (query, 2 * most, most) for query, most in ((1, 1), (3, 3), (19, 19), (20, 19), (23, 19))
    ]
    status = asked(home, "SELECT query, status FROM assumption_weights WHERE head = 0 ORDER BY query")
    assert [row["status"] for row in status] == ["too_short", "too_short", "ok", "ok", "ok"]
    sinks = asked(home, "SELECT query, any_value(norm_y_0) IS NULL AS hidden FROM attention_rows GROUP BY 1 ORDER BY 1")
    assert [row["hidden"] for row in sinks] == [False, False, False, True, True]
    rest = asked(home, "SELECT DISTINCT norm_rest, total_rest FROM attention_rows WHERE query = 1")
    assert rest == [{"norm_rest": 0, "total_rest": 0}]


@pytest.mark.long
def test_one_sequence_has_no_uncertainty(tmp_path: Path) -> None:
    home = finished(tmp_path, keys=24, sequences=1)
    for table in ("assumption_norms", "assumption_similarity", "assumption_weights", "selection_means"):
        columns = [name for name in asked(home, f"FROM {table} LIMIT 1")[0] if name.endswith(("_se", "_low", "_high"))]
        assert columns
        for name in columns:
            assert asked(home, f"SELECT count({name}) AS known FROM {table}") == [{"known": 0}], name
    provenance = json.loads(asked(home, "SELECT provenance FROM studies")[0]["provenance"])
    assert provenance["metrics"]["metrics_version"] == METRICS_VERSION


def spread(rows: np.ndarray) -> None:
    rows[:] = np.float32(1 / rows.shape[-1])


def put_on_last(rows: np.ndarray) -> None:
    rows[:] = 0
    rows[:, -1] = 1


def put_on_sink(rows: np.ndarray) -> None:
    rows[:] = 0
    rows[:, 0] = 1


def silence_all(states: np.ndarray) -> None:
    states[:] = 0


def make_alike(states: np.ndarray) -> None:
    states[:] = states[:1, :1]


def enlarge(states: np.ndarray) -> None:
    states[:] = np.float32(8e37) * np.sign(states)  # the largest that extraction lets pass, for four components


DEGENERATE: dict[str, dict[str, Any]] = {
    "uniform": {"weights": spread},
    "all on the last key": {"weights": put_on_last},
    "all on the sink": {"weights": put_on_sink},
    "one head": {"heads": 1},
    "one head, uniform, one sequence": {"heads": 1, "weights": spread, "sequences": 1},
    "all-zero value states": {"values": silence_all},
    "value states alike": {"values": make_alike},
    "nothing varies": {"values": make_alike, "weights": spread},
    "value states near the limit of float32": {"values": enlarge},
}


MOST = "one head, uniform, one sequence"
"""What is degenerate in most ways at once; all others are long tests."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == MOST else pytest.mark.long) for kind in DEGENERATE]
)
def test_a_degenerate_model_has_a_whole_page(tmp_path: Path, kind: str) -> None:
    home = finished(tmp_path, keys=24, **DEGENERATE[kind])
    page = home.report(NAME).read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert page.rstrip().endswith("</html>")
    assert not re.findall(r"\b(?:nan|None|inf|NaN|Infinity)\b", text)
