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
from storage.warehouse.rows import BY_HEAD, BY_KAPPA, BY_N, SPREAD
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


COLUMNS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "selection_counts": (("head", "n"), dict(zip(BY_N, BY_N, strict=True))),
    "upper_bounds": (("head", "kappa", "n"), dict(zip(BY_KAPPA, BY_KAPPA, strict=True))),
    "attention_rows": (("head",), dict(zip(BY_HEAD, BY_HEAD, strict=True))),
    "concentration": (("head",), dict(zip(SPREAD, SPREAD, strict=True))),
    "value_scales": (("kv_head",), rows.VALUE_SCALES),
}
"""Of each table the axes of its rows after query and layer, and its columns, each with its quantity."""


@pytest.mark.parametrize("table", COLUMNS)
def test_rows_hold_every_element_in_its_place(stored: Stored, tables: Tables, table: str) -> None:
    axes, columns = COLUMNS[table]
    found = []
    for row in pa.Table.from_batches(tables[table]).to_pylist():
        place = (row["sequence"], QUERIES.index(row["query"]), row["layer"])
        indices = {"kappa": studies.KAPPAS.index(row.get("kappa", 2.0)), "n": row.get("n", 1) - 1}
        where = (*place, *(indices.get(axis, row.get(axis)) for axis in axes))
        found.append(where)
        for column, name in columns.items():
            assert row[column] == stored(name, *where), column
        keys = N_KEYS[place[1:]]
        assert row.get("n_keys", keys) == keys
        assert row.get("scale", "unit") == "unit"
    lengths = {"head": 4, "kv_head": 2, "kappa": 2, "n": 11}
    every = np.ndindex(3, 3, 2, *(lengths[axis] for axis in axes))
    seen = [where for where in every if "n" not in axes or where[-1] < N_KEYS[where[1:3]] - 1]
    assert sorted(found) == seen


def test_top_keys_have_their_positions_and_roles(stored: Stored, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["concentration"]).to_pylist()
    roles: set[tuple[str, str]] = set()
    for row in found:
        where = place(row, "head")
        n_keys = N_KEYS[where[1:3]]
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
