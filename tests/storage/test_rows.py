"""Rows equal the arrays they are made of: every element where it belongs, NULL where there is nothing."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geometry.grids import list_half_octaves
from geometry.quantities import RATES, TOP_KEYS, Concentration, QueryMeasures, list_declared
from storage.files.places import LocalPlace
from storage.warehouse import rows
from storage.warehouse.rows import BY_HEAD, BY_N, SPREAD
from storage.zarr.arrays import LayerSize, build_tensor_specs
from storage.zarr.sequences import SequenceStore
from tests.storage import studies
from tests.storage.studies import N_KEYS, QUERIES, Tables

Arrays = dict[str, np.ndarray]

Stored = Callable[..., float | int | None]


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    return studies.tensor_store(tmp_path_factory.mktemp("stores") / "tensors.zarr")


@pytest.fixture(scope="module")
def metrics(tensors: SequenceStore) -> Arrays:
    return studies.measured(tensors)


def build(arrays: Arrays, layers: Sequence[LayerSize], queries: Sequence[int] = QUERIES) -> Tables:
    """The rows of each table."""
    tables: Tables = {}
    for table, batch in studies.measured_rows(arrays, layers, queries):
        tables.setdefault(table, []).append(batch)
    return tables


@pytest.fixture(scope="module")
def tables(metrics: Arrays, tensors: SequenceStore) -> Tables:
    """The rows that are made of the metrics."""
    return build(metrics, tensors.layers)


@pytest.fixture(scope="module")
def stored(metrics: Arrays) -> Stored:
    """Reads one element of an array, NaN as None."""

    def read(name: str, *index: int) -> float | int | None:
        found = metrics[name][index].item()
        return None if found != found else found

    return read


def place(row: dict[str, Any], *axes: str) -> tuple[int, ...]:
    """Where a row is in the arrays, along sequence, query, layer and more axes."""
    return (row["sequence"], QUERIES.index(row["query"]), row["layer"], *(row[axis] for axis in axes))


SELECTIONS = [
    (sequence, query, layer, head, n)
    for sequence, query, layer, head in np.ndindex(3, 3, 2, 4)
    for n in range(1, N_KEYS[query, layer])
]
"""Index of sequence, query, layer and head, and N, of every selection."""


def test_selections(stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["selection_counts"]).to_pylist()
    assert sorted(place(row, "head", "n") for row in found) == SELECTIONS
    for row in found:
        where = (*place(row, "head"), row["n"] - 1)
        for name in BY_N:
            assert row[name] == stored(name, *where), name
        assert row["n_keys"] == N_KEYS[where[1], where[2]]


def test_upper_bounds(stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["upper_bounds"]).to_pylist()
    keys = [(*place(row, "head", "n"), row["kappa"]) for row in found]
    assert sorted(keys) == sorted((*where, kappa) for where in SELECTIONS for kappa in studies.KAPPAS)
    for row in found:
        where = (*place(row, "head"), studies.KAPPAS.index(row["kappa"]), row["n"] - 1)
        for name in ("precision_upper", "recall_upper"):
            assert row[name] == stored(name, *where), name
        assert row["scale"] == "unit"
    absent = {place(row, "head", "n") for row in found if row["recall_upper"] is None}
    selected = pa.Table.from_batches(tables["selection_counts"]).to_pylist()
    assert absent == {place(row, "head", "n") for row in selected if row["s_in"] is None}
    small, large = ([row["recall_upper"] for row in found if row["kappa"] == kappa] for kappa in studies.KAPPAS)
    assert small != large


def test_rows_of_attention(stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["attention_rows"]).to_pylist()
    assert sorted(place(row, "head") for row in found) == list(np.ndindex(3, 3, 2, 4))
    parts = {"norm_y_0", "norm_y_last", "norm_rest", "total_rest", "norm_contributions"}
    outputs = {"norm_output", "norm_output_without_sink", "norm_output_without_last"}
    assert set(BY_HEAD) == {"weight_sum", "sink_weight", "learned_sink", "cos_last_p05", *parts, *outputs}
    for row in found:
        where = place(row, "head")
        for name in BY_HEAD:
            assert row[name] == stored(name, *where), name
        assert row["weight_sum"] == pytest.approx(1)
        hidden = where[1:3] == (2, 1)
        assert (row["n_keys"], row["sink_attended"]) == (N_KEYS[where[1:3]], not hidden)
        assert (row["norm_y_0"] is None) == hidden
        assert row["total_rest"] >= row["norm_rest"] > 0


def test_concentration(stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["concentration"]).to_pylist()
    assert sorted(place(row, "head") for row in found) == list(np.ndindex(3, 3, 2, 4))
    assert {"effective_keys", "effective_contributors", "top_weight", "n_50", "contributors_99"} <= set(SPREAD)
    roles: set[tuple[str, str]] = set()
    for row in found:
        where = place(row, "head")
        n_keys = N_KEYS[where[1:3]]
        assert row["n_keys"] == n_keys
        for name in SPREAD:
            assert row[name] == stored(name, *where), name
        for key, position, role in (
            ("top_key", "top_position", "top_role"),
            ("top_contributor", "top_contributor_position", "top_contributor_role"),
        ):
            top = row[position]
            assert top == row["query"] + 1 - n_keys + stored(key, *where)
            assert row[role] == ("last" if top == row["query"] else "other" if top else "sink")
            roles.add((role, row[role]))
    assert roles == {*product(("top_role", "top_contributor_role"), ("sink", "last", "other"))}


def test_what_contributes_nothing_has_no_top_contributor(metrics: Arrays, tensors: SequenceStore) -> None:
    missing = {name: quantity.fill for name, quantity in list_declared(Concentration).items() if quantity.missing}
    nothing = metrics | {name: np.full_like(metrics[name], fill) for name, fill in missing.items()}
    for batch in build(nothing, tensors.layers)["concentration"]:
        for row in batch.to_pylist():
            empty = {name for name, value in row.items() if value is None}
            assert empty == (missing.keys() - {"top_contributor"}) | {"top_contributor_position"}


def test_the_sink_is_attended_to_if_all_keys_up_to_the_query_are(metrics: Arrays, tensors: SequenceStore) -> None:
    """Were the queries others, so were the answer."""
    for batch in build(metrics, tensors.layers, (5, 8, 10))["attention_rows"]:
        for row in batch.to_pylist():
            assert row["sink_attended"] == ((row["query"], row["layer"]) in {(5, 0), (5, 1), (8, 0), (8, 1)})


def test_scales_of_values(metrics: Arrays, stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["value_scales"]).to_pylist()
    assert sorted(place(row, "kv_head") for row in found) == list(np.ndindex(3, 3, 2, 2))
    norms, cosines = (metrics[name] for name in ("value_norm", "cos_sink_of_keys"))
    for row in found:
        where = sequence, query, layer, kv_head = place(row, "kv_head")
        assert row["value_scale"] == stored("value_scale", *where)
        assert row["rho_0"] == stored("rho_0_of_keys", *where)
        stop = row["query"] + 1
        first = stop - N_KEYS[query, layer]
        of_keys = norms[sequence, layer, kv_head, max(first, 1) : stop]
        assert row["value_scale"] == pytest.approx(np.median(of_keys))
        if first:
            assert row["rho_0"] is None
        else:
            assert row["rho_0"] == pytest.approx(cosines[sequence, layer, kv_head, 1:stop].mean(), abs=1e-6)


def test_every_query_and_context(tmp_path: Path) -> None:
    """Each number is that of its place in the store; what a smaller layer lacks, and what has no query, has no row."""
    sizes = {"sequence": 2, "query": 1, "layer": 2, "head": 2, "kv_head": 1, "key": 5, "head_dim": 4}
    specs = build_tensor_specs(values="float32", computed="float32", every_query=True)
    layers = [LayerSize(2, 1, 4), LayerSize(1, 1, 4)]
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), specs, sizes, {"study": "x"}, layers)
    shapes = {spec.name: spec.shape(sizes) for spec in specs}
    given = {spec.name: np.zeros(spec.shape(sizes), spec.dtype) for spec in specs if spec.name != "finished"}
    for name in ("query_measures", "context_means"):
        given[name] = np.arange(given[name].size, dtype=np.float32).reshape(shapes[name])
    given["query_measures"][1, 0, 1, 2, list(list_declared(QueryMeasures)).index("n_90")] = np.nan  # no weight
    given["context_means"][..., 0, 1:] = np.nan  # of contexts of two keys
    given["query_keys"][:] = np.where(np.arange(TOP_KEYS) < 2, np.arange(2 * TOP_KEYS).reshape(2, -1), np.nan)
    given["query_keys"][1, 0, 1, 2] += 7
    for sequence in range(2):
        store.write(sequence, {name: array[sequence] for name, array in given.items()})
    queries = pa.Table.from_batches(rows.build_query_head_rows(store)).to_pylist()
    assert len(queries) == 2 * 3 * 4
    for row in queries:
        at = given["query_measures"][row["sequence"], row["layer"], row["head"], row["query"]]
        known = [None if np.isnan(number) else number for number in at.tolist()]
        assert [row[name] for name in list_declared(QueryMeasures)] == known
    assert sum(row["n_90"] is None for row in queries) == 1
    for row in queries:
        more = 7 * ([row[name] for name in ("sequence", "layer", "head", "query")] == [1, 0, 1, 2])
        assert row["top_positions"] == [more, 1 + more]
        assert row["top_weights"] == [TOP_KEYS + more, TOP_KEYS + 1 + more]
    contexts = pa.Table.from_batches(rows.build_context_rows(store)).to_pylist()
    grid = list_half_octaves(5).tolist()
    assert len(contexts) == 2 * 3 * (1 + 2 * len(grid))
    for row in contexts:
        place = int(np.log2(row["context"])) - 1, grid.index(row["n"])
        at = given["context_means"][(row["sequence"], row["layer"], row["head"], slice(None), *place)]
        assert [row[name] for name in RATES] == at.tolist()
    assert {row["context"] for row in contexts} == {2, 4, 8}
