"""Metrics on threads: an error ends what has not begun."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_project.assets import metrics
from dagster_project.study.home import Home
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, STUDY, join_layers, several, write_tensors

LAYERS, SEQUENCES = 6, 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A data root with tensors of six layers and no metrics, which two threads measure."""
    home, drawn = Home(tmp_path), several(LAYERS * SEQUENCES // 2)
    write_tensors(home, [join_layers(drawn[first::SEQUENCES]) for first in range(SEQUENCES)])
    monkeypatch.setattr(metrics, "count_threads", lambda: 2)
    return home


def find_measured(home: Home) -> set[int]:
    """The layers that have been measured."""
    made = making.work(home, NAME, STUDY).metrics
    assert made is not None
    return {*range(LAYERS)} - {*made.find_missing()}


def test_an_error_ends_what_has_not_begun_and_complete_layers_stay(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, begun = metrics.measure_rows, []

    def fail(tensors: Any, analysis: Any, layer: int, *rest: Any) -> Iterator[Any]:
        begun.append(layer)
        rows = measure(tensors, analysis, layer, *rest)
        yield next(rows)
        if begun[2:3] == [layer]:
            message = "a block is damaged"
            raise OSError(message)
        yield from rows

    monkeypatch.setattr(metrics, "measure_rows", fail)
    with pytest.raises(OSError, match="a block is damaged"):
        making.measure(home, NAME, STUDY)
    assert len(begun) < LAYERS
    assert {*begun[:1]} <= find_measured(home) <= {*begun} - {begun[2]}
    assert not list(Path(str(home.metrics(NAME))).glob(f"layer-{begun[2]:03}-*/*")), "nothing half-written"
    monkeypatch.undo()
    missing = LAYERS - len(find_measured(home))
    assert making.measured(making.measure(home, NAME, STUDY)) == missing
    assert find_measured(home) == {*range(LAYERS)}
