"""Rows equal the arrays they are made of: every element where it belongs, NULL where there is nothing."""

import numpy as np
import pyarrow as pa
import pytest

from storage.rows import BY_N, attention_rows
from storage.sequences import SequenceStore
from tests.storage import studies

QUERY = studies.SIZES["key"] - 1
Tables = dict[str, list[pa.RecordBatch]]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    folder = tmp_path_factory.mktemp("stores")
    return studies.metrics_store(folder / "metrics.zarr", studies.tensor_store(folder / "tensors.zarr"))


@pytest.fixture(scope="module")
def tables(metrics: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return studies.tables(studies.tensor_store(tmp_path_factory.mktemp("stores") / "tensors.zarr"), metrics)


def stored(metrics: SequenceStore, name: str, *index: int) -> float | int | None:
    """One element of an array, NaN as None."""
    found = np.asarray(metrics.array(name)[index]).item()
    return None if found != found else found


SELECTIONS = [
    (sequence, layer, head, n) for sequence, layer, head in np.ndindex(3, 2, 4) for n in range(1, (12, 9)[layer])
]
"""Sequence, layer, head and N of every selection; a window hides three of the twelve keys in layer 1."""


def test_a_batch_is_at_most_one_sequence(tables: Tables) -> None:
    for name, count in {"selection_counts": 3, "upper_bounds": 6, "attention_rows": 3, "value_scales": 3}.items():
        assert len(tables[name]) == count
        for batch in tables[name]:
            assert len(set(batch["sequence"].to_pylist())) == 1
            assert set(batch["query"].to_pylist()) == {QUERY}


def test_selections(metrics: SequenceStore, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["selection_counts"]).to_pylist()
    assert [(row["sequence"], row["layer"], row["head"], row["n"]) for row in found] == SELECTIONS
    for row in found:
        where = (row["sequence"], row["layer"], row["head"], row["n"] - 1)
        for name in BY_N:
            assert row[name] == stored(metrics, name, *where), name
        assert row["n_keys"] == (12, 9)[row["layer"]]


def test_what_only_the_sink_has_no_part_in_is_null_where_nothing_else_is_selected(tables: Tables) -> None:
    """J is empty at N = 1 of one head of layer 0; in layer 1 a window hides the sink."""
    found = pa.Table.from_batches(tables["selection_counts"]).to_pylist()
    alone = [row for row in found if row["n"] == 1 and row["a_0"] is not None]
    assert [(row["sequence"], row["layer"], row["head"]) for row in alone] == [(0, 0, 3)]
    for row in found:
        for name in ("s_in", "a_min_in", "a_max_in", "rho_out"):
            assert (row[name] is None) == (row in alone), (name, row)
        assert row["a_max_out"] is not None
        assert row["layer"] == 0 or row["a_0"] is None


def test_a_0_is_null_until_the_sink_is_selected_and_the_same_from_then_on(tables: Tables) -> None:
    found = pa.Table.from_batches(tables["selection_counts"]).to_pylist()
    seen = set()
    for sequence, layer, head in np.ndindex(3, 1, 4):
        by_n = [row["a_0"] for row in found if (row["sequence"], row["layer"], row["head"]) == (sequence, layer, head)]
        since = by_n.count(None)
        assert set(by_n[:since]) <= {None}
        assert len(set(by_n[since:])) <= 1
        seen.add(since)
    assert len(seen) > 3


def test_upper_bounds(metrics: SequenceStore, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["upper_bounds"]).to_pylist()
    keys = [(row["sequence"], row["layer"], row["head"], row["n"], row["kappa"]) for row in found]
    assert sorted(keys) == sorted((*where, kappa) for where in SELECTIONS for kappa in studies.KAPPAS)
    for row in found:
        where = (row["sequence"], row["layer"], row["head"], studies.KAPPAS.index(row["kappa"]), row["n"] - 1)
        for name in ("precision_upper", "recall_upper"):
            assert row[name] == stored(metrics, name, *where), name
        assert row["scale"] == "unit"
    absent = {(row["sequence"], row["layer"], row["head"], row["n"]) for row in found if row["recall_upper"] is None}
    assert absent == {(0, 0, 3, 1)}
    small, large = ([row["recall_upper"] for row in found if row["kappa"] == kappa] for kappa in studies.KAPPAS)
    assert small != large


def test_rows_of_attention(metrics: SequenceStore, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["attention_rows"]).to_pylist()
    assert [(row["sequence"], row["layer"], row["head"]) for row in found] == list(np.ndindex(3, 2, 4))
    for row in found:
        where = (row["sequence"], row["layer"], row["head"])
        assert row["weight_sum"] == stored(metrics, "weight_sum", *where) == pytest.approx(1)
        assert (row["n_keys"], row["sink_attended"]) == ((12, True), (9, False))[row["layer"]]


def test_the_sink_is_attended_to_if_all_keys_up_to_the_query_are(metrics: SequenceStore) -> None:
    """A query may stand before the last position."""
    for batch in attention_rows(metrics, 8):
        for row in batch.to_pylist():
            assert row["sink_attended"] == (row["n_keys"] == 9) == (row["layer"] == 1)


def test_scales_of_values(metrics: SequenceStore, tables: Tables) -> None:
    found = pa.Table.from_batches(tables["value_scales"]).to_pylist()
    assert [(row["sequence"], row["layer"], row["kv_head"]) for row in found] == list(np.ndindex(3, 2, 2))
    norms = np.asarray(metrics.array("value_norm")[:])
    for row in found:
        where = (row["sequence"], row["layer"], row["kv_head"])
        assert row["value_scale"] == stored(metrics, "value_scale", *where)
        assert row["value_scale"] == pytest.approx(np.median(norms[where][(1, 3)[row["layer"]] :]))
