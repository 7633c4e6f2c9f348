"""Metrics on threads: sequences overlap, few are in memory, and an error ends what has not begun."""

from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from dagster_project.assets import metrics
from dagster_project.assets.metrics import WAITING
from dagster_project.study.home import Home
from storage.zarr.arrays import SELECTION
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, SIZES, STUDY, measured, several

BLOCKS = SIZES["layer"]
"""Blocks of a sequence."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A data root with tensors of five sequences and no metrics, which two threads measure."""
    made = measured(tmp_path, several())
    made.metrics(NAME).remove()
    monkeypatch.setattr(metrics, "count_threads", lambda: 2)
    return made


def find_measured(home: Home) -> set[int]:
    """The sequences that the metrics store has."""
    missing = SequenceStore.open(home.metrics(NAME), SELECTION).find_missing()
    return {*range(SIZES["sequence"])} - {*missing}


def test_a_sequence_begins_before_the_last_block_of_the_one_before_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, next_began, waited = metrics.measure_block, Event(), []

    def wait(tensors: Any, analysis: Any, sequence: int, block: Any, *rest: Any) -> None:
        if sequence == 1:
            next_began.set()
        if (sequence, block.layer) == (0, BLOCKS - 1):
            waited.append(next_began.wait(60))
        measure(tensors, analysis, sequence, block, *rest)

    monkeypatch.setattr(metrics, "measure_block", wait)
    assert making.measured(making.measure(home, NAME, STUDY)) == SIZES["sequence"]
    assert waited == [True]


@pytest.mark.parametrize("planned", [3, 64])
def test_the_results_of_few_sequences_are_in_memory(home: Home, monkeypatch: pytest.MonkeyPatch, planned: int) -> None:
    make, measure, write = metrics.make_arrays, metrics.measure_block, SequenceStore.write
    made, lock, begun, most = [], Lock(), set(), [0]

    def count(sizes: Any) -> Any:
        made.append(make(sizes))
        return made[-1]

    def begin(tensors: Any, analysis: Any, sequence: int, *rest: Any) -> None:
        with lock:
            begun.add(sequence)
            most[0] = max(most[0], len(begun))
        measure(tensors, analysis, sequence, *rest)

    def end(store: SequenceStore, sequence: int, arrays: Any) -> None:
        write(store, sequence, arrays)
        with lock:
            begun.discard(sequence)

    monkeypatch.setattr(metrics, "PLANNED", planned)
    monkeypatch.setattr(metrics, "make_arrays", count)
    monkeypatch.setattr(metrics, "measure_block", begin)
    monkeypatch.setattr(SequenceStore, "write", end)
    making.measure(home, NAME, STUDY)
    assert len(made) == WAITING >= most[0]
    assert find_measured(home) == {*range(SIZES["sequence"])}


def test_an_error_ends_what_has_not_begun_and_complete_sequences_stay(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, begun = metrics.measure_block, []

    def fail(tensors: Any, analysis: Any, sequence: int, *rest: Any) -> None:
        begun.append(sequence)
        if sequence == 2:
            message = "a block is damaged"
            raise OSError(message)
        measure(tensors, analysis, sequence, *rest)

    monkeypatch.setattr(metrics, "measure_block", fail)
    with pytest.raises(OSError, match="a block is damaged"):
        making.measure(home, NAME, STUDY)
    assert {0} <= find_measured(home) <= {0, 1, 3}
    assert 4 not in begun
    monkeypatch.undo()
    missing = SIZES["sequence"] - len(find_measured(home))
    assert making.measured(making.measure(home, NAME, STUDY)) == missing
    assert find_measured(home) == {*range(SIZES["sequence"])}
