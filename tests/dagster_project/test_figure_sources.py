"""The assets behind Figures 6, 9 and 10: their rows beside literal ones, and what the warehouse takes of them."""

from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis import contributions, passes
from dagster_project.analysis.contributions import compute_contributions
from dagster_project.analysis.directions import compute_value_directions
from dagster_project.analysis.fits import compute_assumption_similarity
from dagster_project.analysis.metrics import Metrics
from dagster_project.analysis.norms import compute_assumption_norms
from dagster_project.analysis.passes import run_pass
from dagster_project.analysis.sink import SinkEffect
from dagster_project.analysis.sources import Rows, Sources
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from geometry.assumptions.directions import DirectionMoments
from geometry.quantities import SELECTION
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.blas import blas_threads, two_blas_threads
from tests.dagster_project.intervals import columns, near, of_statistic
from tests.memory import trace
from tests.storage.studies import MetricArrays, write_metrics

SIZES = {"sequence": 5, "query": 3, "layer": 3, "head": 4, "kv_head": 2, "key": 24, "head_dim": 5}
QUERIES = (7, 15, 23)
WINDOW = 12
"""Layer 1 sees so many keys, so that the later queries do not see the sink."""
NO_SINK, SELDOM_SINK, NO_KEY = (0, 1), (2, 0), (2, 1, 5)
"""A KV head whose sink has norm 0, one whose sink has in sequence 1, and a value state that has."""
STUDY = Study.model_validate({"model": "m", "corpus": "c", "context_length": 24, "sequences": 5})
COMPUTED: dict[str, Callable[[Sources], Rows]] = {
    "sink_effect": lambda sources: run_pass(sources, [SinkEffect(sources)]),
    "attention_by_position": compute_contributions,
    **dict.fromkeys(("principal_directions", "value_directions"), compute_value_directions),
    "cosine_by_distance": compute_assumption_similarity,
    "value_norm_by_position": compute_assumption_norms,
}
"""What computes these tables, among others."""
Drawn = dict[str, np.ndarray]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length > 0 else np.nan


def unfilled(sizes: dict[str, int]) -> Drawn:
    """The quantities of one sequence before anything is known."""
    return {
        name: np.full([sizes[axis] for axis in quantity.axes], quantity.fill, quantity.dtype)
        for name, quantity in SELECTION.items()
    }


def tensors_of(rng: np.random.Generator, sequence: int, sizes: dict[str, int], queries: tuple[int, ...]) -> Drawn:
    """Tensors of one sequence; a sink, and weights of keys that a query does not see are 0."""
    shapes = {spec.name: (spec.shape(sizes)[1:], spec.fill, spec.dtype) for spec in TENSORS if spec.name != "finished"}
    arrays = {name: np.full(shape, fill, dtype) for name, (shape, fill, dtype) in shapes.items()}
    arrays["values"][:] = rng.standard_normal(arrays["values"].shape) + rng.standard_normal(sizes["head_dim"])
    if sizes["layer"] > 2:
        arrays["values"][(*NO_SINK, 0)] = 0
        arrays["values"][NO_KEY] = 0
        arrays["values"][(*SELDOM_SINK, 0)] *= sequence != 1
    position, keys = np.array(queries), np.arange(sizes["key"])
    arrays["query_position"][:], arrays["tokens"][:] = position, keys
    arrays["first_key"][:] = 0
    if sizes["layer"] > 2:
        arrays["first_key"][:, 1] = np.maximum(position - WINDOW + 1, 0)
    hidden = (keys < arrays["first_key"][:, :, None, None]) | (keys > position[:, None, None, None])
    weights = np.where(hidden, 0, np.exp(rng.standard_normal(arrays["attention"].shape)))
    arrays["attention"][:] = weights / weights.sum(axis=-1, keepdims=True)
    return arrays


def metrics_of(rng: np.random.Generator, tensors: Drawn, sizes: dict[str, int]) -> Drawn:
    """What the steps read of the metrics of one sequence: norms and cosines literally, counts drawn."""
    arrays, values = unfilled(sizes), tensors["values"].astype(np.float64)
    arrays["value_norm"][:] = np.linalg.norm(values, axis=-1)
    arrays["n_keys"][:] = tensors["query_position"][:, None] + 1 - tensors["first_key"]
    for layer, head, key in np.ndindex(values.shape[:3]):
        arrays["cos_sink_of_keys"][layer, head, key] = cosine(values[layer, head, key], values[layer, head, 0])
    for query, layer in np.ndindex(tensors["first_key"].shape):
        first, last = int(tensors["first_key"][query, layer]), int(tensors["query_position"][query])
        n = np.arange(1, last + 1 - first)
        arrays["k_in"][query, layer, :, : n.size] = rng.integers(1, n + 1, (sizes["head"], n.size))
        for head, key in product(range(sizes["kv_head"]), range(first, last + 1)):
            states = values[layer, head]
            arrays["cos_last_of_keys"][query, layer, head, key] = cosine(states[key], states[last])
        if first == 0 and last > 0:
            cosines = arrays["cos_sink_of_keys"][layer, :, 1 : last + 1]
            arrays["rho_0_of_keys"][query, layer] = [
                np.mean(row[~np.isnan(row)]) if not np.isnan(row).all() else np.nan for row in cosines
            ]
    return arrays


def unmeasured(rng: np.random.Generator, tensors: Drawn, sizes: dict[str, int]) -> Drawn:
    """Metrics of one sequence that are no one's."""
    arrays = unfilled(sizes)
    arrays["n_keys"][:] = tensors["query_position"][:, None] + 1 - tensors["first_key"]
    for name in ("value_norm", "cos_last_of_keys", "cos_sink_of_keys"):
        arrays[name][:] = rng.uniform(size=arrays[name].shape)
    return arrays


def drawn(
    root: Path,
    sizes: dict[str, int] = SIZES,
    queries: tuple[int, ...] = QUERIES,
    measure: Callable = metrics_of,
    change: Callable[[Drawn], Drawn] = lambda arrays: arrays,
) -> Sources:
    """The tensors of a drawn study, and what is measured of them, (sequence, …), after a change."""
    rng = np.random.default_rng(3)
    provenance = {"study": "drawn", "settings": {}, "inputs": {}, "versions": {}}
    tensors = SequenceStore.resume(LocalPlace(root / "tensors"), TENSORS, sizes, provenance)
    sizes = sizes | {"kappa": 1, "n": sizes["key"] - 1}
    measured = []
    for sequence in range(sizes["sequence"]):
        arrays = tensors_of(rng, sequence, sizes, queries)
        tensors.write(sequence, arrays)
        measured.append(measure(rng, arrays, sizes))
    metrics = Metrics.of(Home(root), "drawn", tensors, STUDY.analysis)
    write_metrics(metrics, change({name: np.stack([each[name] for each in measured]) for name in SELECTION}))
    return Sources("drawn", tensors, metrics, LocalPlace(root / "parts"), STUDY)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return drawn(tmp_path_factory.mktemp("drawn"))


def rows(sources: Sources, table: str) -> list[dict[str, Any]]:
    return [row for name, part in COMPUTED[table](sources) if name == table for row in part.to_pylist()]


def array(sources: Sources, name: str) -> np.ndarray:
    """An array of either store, in float64."""
    return read(sources.tensors.path, sources.metrics.folder, name)


@cache
def read(tensors: LocalPlace, folder: LocalPlace, name: str) -> np.ndarray:
    store = SequenceStore.open(tensors, TENSORS)
    if name in store.specs and name != "learned_sink":
        return np.asarray(store.array(name)[:], np.float64)
    measured = Metrics.of(Home(folder.path.parents[1]), "drawn", store, STUDY.analysis)
    return MetricArrays(measured).array(name).astype(np.float64)


def mean_of_known(values: np.ndarray) -> float:
    """Mean of what is no NaN."""
    some = values[~np.isnan(values)]
    return float(some.mean()) if some.size else np.nan


# --- Figure 6 ---


def correlation(sources: Sources, query: int, n: int, sequences: np.ndarray) -> tuple[int, float]:
    """Heads that take part, and the correlation over them of means over the given sequences: literally."""
    k_in, rho, n_keys = (array(sources, name) for name in ("k_in", "rho_0_of_keys", "n_keys"))
    pairs = []
    for layer, head in product(range(3), range(4)):
        known_rho = mean_of_known(rho[sequences, query, layer, head // 2])
        if not np.isnan(known_rho) and n < n_keys[0, query, layer]:
            pairs.append((float(np.mean(k_in[sequences, query, layer, head, n - 1] / n)), known_rho))
    recalls, rhos = np.array(pairs).T
    same = np.ptp(recalls) < 1e-12 or np.ptp(rhos) < 1e-12
    return len(pairs), np.nan if same else float(np.corrcoef(recalls, rhos)[0, 1])


def grid(query: int) -> list[int]:
    """The N of a query, literally: 48 points evenly spaced in ln N."""
    return sorted({int(query ** (step / 47) + 0.5) for step in range(48)})


@pytest.mark.parametrize("most", [passes.BLOCK_BYTES, 4 * 5 * 4 * 24, 1], ids=["layers", "a layer", "a sequence"])
def test_the_sink_effect_is_correlated_again_without_each_sequence(
    sources: Sources, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Intervals are made of Fisher's z, on a log grid of N at every query, however much is read at once."""
    monkeypatch.setattr(passes, "BLOCK_BYTES", most)
    found = rows(sources, "sink_effect")
    assert [(row["query"], row["n"]) for row in found] == [(q, n) for q in QUERIES for n in grid(q)]
    of_z = 0.0
    for row in found:
        place = (QUERIES.index(row["query"]), row["n"])
        heads, _ = correlation(sources, *place, np.arange(5))
        assert heads == row["heads"] == (10 if row["query"] == 7 else 6)
        assert row["sequences"] == 5
        if row["n"] == 1:  # Recall is 1 in every head
            assert [row[name] for name in columns("correlation", (0, 0, 0))] == [None] * 3
            continue
        ends = of_statistic(lambda kept, place=place: np.arctanh(correlation(sources, *place, kept)[1]), 5)
        assert near(row, columns("correlation", tuple(np.tanh(ends))))
        _, low, high = of_statistic(lambda kept, place=place: correlation(sources, *place, kept)[1], 5)
        of_z = max(of_z, abs(low - row["correlation_low"]), abs(high - row["correlation_high"]))
    assert of_z > 0.01  # mutation control


# --- Figure 10 ---


def contribution(sources: Sources, query: int, layer: int, head: int, position: int) -> dict[str, float]:
    """The statistics of a row of ``attention_by_position``, literally."""
    values, weights = array(sources, "values")[:, layer, head // 2], array(sources, "attention")
    lengths = [float(np.linalg.norm(weights[s, query, layer, head, position] * values[s, position])) for s in range(5)]
    last = np.array([cosine(of_one[position], of_one[QUERIES[query]]) for of_one in values])
    sink = np.array([cosine(of_one[position], of_one[0]) for of_one in values])
    hidden = array(sources, "first_key")[0, query, layer] > 0
    return {
        "mean_norm_y": float(np.mean(lengths)),
        "mean_cos_last": mean_of_known(last),
        "mean_cos_sink": np.nan if hidden else mean_of_known(sink),
    }


PLACE = ("query", "layer", "head", "position")


def test_contributions_are_means_over_sequences_where_the_mask_shows_keys(sources: Sources) -> None:
    found = rows(sources, "attention_by_position")
    first = {(q, layer): max(q - WINDOW + 1, 0) * (layer == 1) for q in QUERIES for layer in range(3)}
    assert [tuple(row[name] for name in PLACE) for row in found] == [
        (q, layer, head, position)
        for q in QUERIES
        for layer in range(3)
        for head in range(4)
        for position in range(first[q, layer], q + 1)
    ]
    for row in found:
        wanted = contribution(sources, QUERIES.index(row["query"]), row["layer"], row["head"], row["position"])
        assert near(row, wanted, 1e-6, 1e-6), (row, wanted)
        assert row["sequences"] == 5


def test_cosines_with_the_sink_are_unknown_where_there_is_none(sources: Sources) -> None:
    found = rows(sources, "attention_by_position")
    unknown = {(row["query"], row["layer"], row["head"]) for row in found if row["mean_cos_sink"] is None}
    some_key = {(q, 2, head) for q in QUERIES for head in (2, 3)}  # of norm 0
    assert unknown == some_key | {(q, 1, head) for q in (15, 23) for head in range(4)} | {
        (q, 0, head) for q in QUERIES for head in (2, 3)
    }
    assert all(row["mean_cos_last"] is not None for row in found if row["layer"] == 1)
    assert [row["mean_norm_y"] for row in found if (row["layer"], row["head"], row["position"]) == (2, 2, 5)] == [0] * 3


# --- Figure 9 ---


def decomposed(sources: Sources, layer: int, kv_head: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and axes of the unit vectors of all sequences without the sink, at once."""
    states = array(sources, "values")[:, layer, kv_head, 1:].reshape(-1, SIZES["head_dim"])
    unit = np.array([v / np.linalg.norm(v) for v in states if v.any()])
    _, strength, axes = np.linalg.svd(unit, full_matrices=False)
    sides = np.where(axes @ unit.mean(axis=0) < 0, -1, 1)
    return strength**2 / len(unit), axes * sides[:, None]


def test_principal_directions_are_those_of_all_sequences(sources: Sources) -> None:
    found = rows(sources, "principal_directions")
    assert [(row["layer"], row["kv_head"]) for row in found] == list(product(range(3), range(2)))
    for row in found:
        shares, _ = decomposed(sources, row["layer"], row["kv_head"])
        assert [row["share_1"], row["share_2"], row["share_3"]] == pytest.approx(list(shares[:3]), abs=1e-12)
        assert row["effective_dimension"] == pytest.approx(1 / (shares**2).sum())
        assert (row["sequences"], row["status"]) == (5, "ok")


def test_value_directions_are_points_of_sequence_0(sources: Sources) -> None:
    found, values = rows(sources, "value_directions"), array(sources, "values")[0]
    directed = [place for place in np.ndindex(3, 2, 24) if values[place].any()]
    assert [(row["layer"], row["kv_head"], row["position"]) for row in found] == directed
    assert len(directed) == 3 * 2 * 24 - 2  # a sink and a key of norm 0
    for row, place in zip(found, directed, strict=True):
        _, axes = decomposed(sources, *place[:2])
        wanted = axes[:3] @ values[place] / np.linalg.norm(values[place])
        assert [row["x"], row["y"], row["z"]] == pytest.approx(list(wanted), abs=1e-6)


def test_a_head_of_norm_0_has_no_directions(tmp_path: Path) -> None:
    empty = drawn(tmp_path, SIZES | {"sequence": 1})
    states = np.asarray(empty.tensors.array("values")[:])
    states[:, 1, 1, 1:] = 0
    empty.tensors.array("values")[:] = states
    row = rows(empty, "principal_directions")[3]
    assert (row["layer"], row["kv_head"], row["status"]) == (1, 1, "zero")
    assert {row[name] for name in ("share_1", "share_2", "share_3", "effective_dimension")} == {None}
    places = {(row["layer"], row["kv_head"]) for row in rows(empty, "value_directions")}
    assert places == set(product(range(3), range(2))) - {(1, 1)}


def test_directions_take_one_blas_thread_and_leave_the_others_to_the_rest(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of head_dim × head_dim are slower on several threads; a limit must not outlive the layer."""
    seen: list[set[int]] = []
    for name in ("add", "compute_directions"):
        work = getattr(DirectionMoments, name)

        def noted(*given: Any, work: Callable[..., Any] = work) -> Any:
            seen.append(blas_threads())
            return work(*given)

        monkeypatch.setattr(DirectionMoments, name, noted)
    with two_blas_threads():
        for _ in compute_value_directions(sources):
            assert blas_threads() == {2}
    assert len(seen) == 3 * 2 * (5 + 1)
    assert all(threads == {1} for threads in seen)


# --- means by position and distance ---


def test_means_by_position_are_those_of_what_is_known(tmp_path: Path) -> None:
    """Beside NumPy's over all sequences at once; a cosine is unknown in some sequences or in all."""

    def change(arrays: Drawn) -> Drawn:
        cosines = np.random.default_rng(1).uniform(-1, 1, arrays["mean_cosine"].shape).astype(np.float32)
        cosines[1:3, 1, :, 7], cosines[:, 2, 1, 9] = np.nan, np.nan
        return arrays | {"mean_cosine": cosines}

    made = drawn(tmp_path, change=change)
    weights, norms = array(made, "attention"), array(made, "value_norm")
    for table, numbers, place, quantity in (
        ("value_norm_by_position", norms, ("layer", "kv_head", "position"), "norm"),
        ("cosine_by_distance", array(made, "mean_cosine"), ("layer", "kv_head", "distance"), "cosine"),
        ("attention_by_position", weights, ("query", "layer", "head", "position"), "weight"),
    ):
        found = rows(made, table)
        assert len({tuple(row[axis] for axis in place) for row in found}) == len(found)
        for row in found:
            index = tuple(QUERIES.index(row[axis]) if axis == "query" else row[axis] for axis in place)
            known = numbers[(slice(None), *index)]
            known = known[~np.isnan(known)]
            wanted = {f"mean_{quantity}": known.mean() if known.size else np.nan}
            assert near(row, wanted, 1e-6, 1e-7), (table, row, wanted)
    unknown = [row for row in rows(made, "cosine_by_distance") if row["mean_cosine"] is None]
    assert [(row["layer"], row["kv_head"], row["distance"]) for row in unknown] == [(2, 1, 9)]


# --- all of them ---


def test_one_sequence_of_one_head_of_two_keys(tmp_path: Path) -> None:
    sizes = {"sequence": 1, "query": 2, "layer": 1, "head": 1, "kv_head": 1, "key": 2, "head_dim": 1}
    small = drawn(tmp_path, sizes, (0, 1))
    values, weights = array(small, "values").ravel(), array(small, "attention")[0, :, 0, 0]
    effects = rows(small, "sink_effect")
    seen = [(row["query"], row["n"], row["heads"], row["correlation"]) for row in effects]
    assert seen == [(0, 1, 0, None), (1, 1, 1, None)]
    found = rows(small, "attention_by_position")
    assert [(row["query"], row["position"]) for row in found] == [(0, 0), (1, 0), (1, 1)]
    wanted = [abs(weights[q, p] * values[p]) for q, p in ((0, 0), (1, 0), (1, 1))]
    assert [row["mean_norm_y"] for row in found] == pytest.approx(wanted)
    (directions,) = rows(small, "principal_directions")
    assert [directions[f"share_{i}"] for i in (1, 2, 3)] == [1, 0, 0]
    points = rows(small, "value_directions")
    assert [(row["y"], row["z"]) for row in points] == [(0, 0), (0, 0)]
    assert points[1]["x"] == 1


def test_a_query_that_sees_no_sink_has_no_sink_effect(tmp_path: Path) -> None:
    def change(arrays: Drawn) -> Drawn:
        return arrays | {"rho_0_of_keys": np.full_like(arrays["rho_0_of_keys"], np.nan)}

    hidden = drawn(tmp_path, SIZES | {"sequence": 2}, change=change)
    found = rows(hidden, "sink_effect")
    assert len(found) == sum(len(grid(query)) for query in QUERIES)
    assert {(row["heads"], row["correlation"], row["correlation_high"]) for row in found} == {(0, None, None)}


@pytest.mark.slow
def test_memory_does_not_grow_with_sequences_or_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what a store knows of what it has read: a third of what the sequences more, or a layer's rows, take."""
    monkeypatch.setattr(contributions, "BLOCK_BYTES", 1)  # so that one sequence is read at once
    sizes = SIZES | {"query": 1, "key": 2000, "head": 8, "head_dim": 8}
    found: dict[str, list[int]] = {"attention_by_position": [], "value_directions": []}
    for sequences, layers in ((4, 1), (24, 2)):
        more = sizes | {"sequence": sequences, "layer": layers}
        made = drawn(tmp_path / f"{sequences}", more, (1999,), unmeasured)
        for asset, peaks in found.items():
            deque(COMPUTED[asset](made), maxlen=0)  # what is imported or compiled once is there
            peaks.append(trace(lambda made=made, asset=asset: deque(COMPUTED[asset](made), maxlen=0))[1])
    more_taken = {"attention_by_position": 8 * 2000 * 32, "value_directions": 20 * 2000 * 4 * 2 * 8}
    for asset, (few, many) in found.items():
        assert many - few < more_taken[asset] / 3, asset
