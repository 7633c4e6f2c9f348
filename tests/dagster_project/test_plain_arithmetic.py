"""The asset ``arithmetic``: its rows beside loops that are written out, and which heads and N are looked at."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.steps.summaries.arithmetic import HEADS, POINTS, sample_heads, select_sizes
from dagster_project.study.home import Home
from geometry.selection.arithmetic import ARITHMETICS
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, QUERIES, STUDY, measured, several
from tests.geometry import oracle
from tests.geometry.arithmetic_by_loop import by_loop

Row = dict[str, Any]


def sunk(sequences: int) -> list[dict[str, np.ndarray]]:
    """Drawn sequences in which head 1 of layer 0 leaves next to nothing to all keys but the sink."""
    found = several(sequences)
    for drawn in found:
        drawn["attention"][:, 0, 1, 1:] *= np.float32(1e-7)
        drawn["values"][0, 0, 0] *= 100
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which the asset has been made."""
    found = measured(tmp_path_factory.mktemp("drawn"), sunk(3))
    making.summarise(found, NAME, STUDY, ["arithmetic"])
    return found


def rows(home: Home) -> list[Row]:
    return making.rows(home, NAME, "arithmetic")


def expected(home: Home, layer: int, head: int, name: str) -> dict[str, float]:
    """A row, from counts in the arithmetic and in exact arithmetic, of all N of the last query of two sequences."""
    tensors, found = SequenceStore.open(home.tensors(NAME), TENSORS), []
    keys = slice(FIRST[-1, layer], QUERIES[-1] + 1)
    for sequence in range(2):
        weights = np.asarray(tensors.array("attention")[sequence, -1, layer, head, keys])
        values = np.asarray(tensors.array("values")[sequence, layer, head // 2, keys])
        exact = oracle.exact_counts(weights, values)
        plain, n = by_loop(weights, values, name), np.arange(1, len(weights))
        recall, precision = exact["k_in"] / n, n / (n + exact["k_out"])
        apart = {"recall": plain[0] / n - recall, "precision": n / (n + plain[1]) - precision}
        found.append(
            {
                "recall_differs": (plain[0] != exact["k_in"]).mean(),
                "precision_differs": (plain[1] != exact["k_out"]).mean(),
                "recall_at_4": recall[3],
                "precision_at_4": precision[3],
            }
            | {f"{metric}_difference": difference.mean() for metric, difference in apart.items()}
            | {f"{metric}_difference_at_4": difference[3] for metric, difference in apart.items()}
        )
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def test_rows_are_those_of_loops_beside_exact_counts(home: Home) -> None:
    found = {(row["layer"], row["head"], row["arithmetic"]): row for row in rows(home)}
    assert list(found) == [(layer, head, name) for layer in (0, 1) for head in range(4) for name in ARITHMETICS]
    for (layer, head, name), row in found.items():
        assert (row["query"], row["sequences"]) == (QUERIES[-1], 2)
        assert row["n_values"] == QUERIES[-1] - FIRST[-1, layer]
        if name != "float32_cdist":  # matrix products of one row and of many are rounded differently
            for column, value in expected(home, layer, head, name).items():
                assert row[column] == pytest.approx(value, abs=1e-12), column


def test_what_plain_arithmetic_miscounts_is_seen(home: Home) -> None:
    """In float32, of the head whose sink outweighs all; not of float64, which has digits enough."""
    for row in rows(home):
        if row["arithmetic"] == "float64_literal":
            assert (row["recall_differs"], row["recall_difference"]) == (0, 0)
        elif (row["layer"], row["head"]) == (0, 1):
            assert row["recall_differs"] > 0.3
            assert abs(row["recall_difference"]) > 0.05


def test_heads_are_evenly_spaced_over_the_model(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = SequenceStore.open(home.tensors(NAME), TENSORS)
    assert sample_heads(tensors) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
    monkeypatch.setitem(sample_heads.__globals__, "HEADS", 3)
    assert sample_heads(tensors) == {0: [0, 3], 1: [3]}
    making.make(home, NAME, ["arithmetic"], STUDY, force=True)
    assert {(row["layer"], row["head"]) for row in rows(home)} == {(0, 0), (0, 3), (1, 3)}
    assert HEADS >= 64


@pytest.mark.parametrize("keys", [1, 2, 4, 5, 129, 130, 1024])
def test_n_are_evenly_spaced_with_4_among_them(keys: int) -> None:
    found = select_sizes(keys)
    assert set(range(1, min(keys, POINTS + 1))) <= set(found) or keys > POINTS + 1
    assert (4 in found) == (keys > 4)
    assert len(found) <= POINTS + 1
    if keys > 1:
        assert (found[0], found[-1]) == (1, keys - 1)
        assert (np.diff(found) > 0).all()


def test_few_keys_have_no_n_of_4_and_one_has_no_row(tmp_path: Path) -> None:
    """Layer 0 attends to four keys, layer 1 to one."""
    drawn = several(2)
    for sequence in drawn:
        for layer, first in ((0, 36), (1, 39)):
            sequence["first_key"][-1, layer] = first
            sequence["attention"][-1, layer, :, :first] = 0
    home = measured(tmp_path, drawn)
    making.summarise(home, NAME, STUDY, ["arithmetic"])
    found = rows(home)
    assert {(row["layer"], row["n_values"]) for row in found} == {(0, 3)}
    columns = [f"{metric}{part}_at_4" for metric in ("recall", "precision") for part in ("", "_difference")]
    assert {row[column] for row in found for column in columns} == {None}
    assert all(row["recall_difference"] is not None for row in found)
