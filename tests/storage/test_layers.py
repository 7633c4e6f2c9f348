"""Which layers and sequences are read at once."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from storage.zarr.arrays import LayerSize
from storage.zarr.layers import list_runs, split_run

WIDE, NARROW, NONE = LayerSize(heads=4, kv_heads=2, head_dim=8), LayerSize(2, 2, 8), LayerSize(0, 0, 0)


def make_store(*layers: LayerSize) -> Any:
    return cast("Any", SimpleNamespace(layers=layers))


def test_runs_are_of_one_size_and_one_value() -> None:
    store = make_store(WIDE, WIDE, NONE, WIDE, NARROW)
    assert list_runs(store) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert list_runs(store, np.array([7, 9, 9, 9, 9])) == [slice(number, number + 1) for number in range(5)]
    assert list_runs(make_store(WIDE, WIDE, WIDE), np.array([7, 7, 9])) == [slice(0, 2), slice(2, 3)]


@pytest.mark.parametrize("most", [1, 10, 30, 59, 60, 79, 80, 119, 120, 1000])
def test_parts_hold_each_sequence_of_each_layer_once_within_the_bytes(most: int) -> None:
    run, sequences, of_one = slice(3, 8), 4, 10
    parts = split_run(run, sequences, of_one, most)
    places = [
        (layer, sequence)
        for layers, part in parts
        for layer in range(layers.start, layers.stop)
        for sequence in range(part.start, part.stop)
    ]
    assert sorted(places) == [(layer, sequence) for layer in range(3, 8) for sequence in range(4)]
    for layers, part in parts:
        held = (layers.stop - layers.start) * (part.stop - part.start)
        assert held * of_one <= max(most, of_one)
        assert layers.stop - layers.start == 1 or part == slice(0, 4)


def test_parts_are_as_large_as_they_may_be() -> None:
    assert split_run(slice(3, 8), 4, 10, 80) == [(slice(first, min(first + 2, 8)), slice(0, 4)) for first in (3, 5, 7)]
    assert split_run(slice(3, 8), 4, 10, 30)[:2] == [(slice(3, 4), slice(0, 3)), (slice(3, 4), slice(3, 4))]
