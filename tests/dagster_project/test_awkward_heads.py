"""Heads that no assumption fits, from tensors to the report: a status and NULL, never a crash or a silent number."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def spread(rows: np.ndarray) -> None:
    rows[:] = np.float32(1 / rows.shape[-1])


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
    "all on the sink": {"weights": put_on_sink},
    "one head, uniform, one sequence": {"heads": 1, "weights": spread, "sequences": 1},
    "all-zero value states": {"values": silence_all},
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
