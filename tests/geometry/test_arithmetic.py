"""Plain arithmetic against loops that are written out, and beside the exact counts."""

import numpy as np
import pytest

from benchmarks.arithmetic import ARITHMETICS, compare_recall, count_keys, describe_head
from geometry import selection_counts
from tests.geometry.draws import random_head, sunk_head


def test_errors_are_those_of_the_counts() -> None:
    head = sunk_head(60, 8, 0)
    exact, k_in = selection_counts(*head).recall, count_keys(*head, "float32_loop")[0]
    share, off = compare_recall(*head, "float32_loop")
    assert share == np.mean(k_in / np.arange(1, 60) != exact) > 0
    assert off == pytest.approx(np.mean(k_in / np.arange(1, 60) - exact))


@pytest.mark.parametrize("name", ARITHMETICS)
def test_float32_and_even_float64_err_where_the_sink_outweighs_all(name: str) -> None:
    """What separates the others is below the rounding of ‖s − y‖², so they all seem equally far."""
    share, off = compare_recall(*sunk_head(300, 16, 0), name)
    assert share > 0.5
    assert off > 0.1


def test_float32_errs_on_ordinary_heads_and_float64_does_not() -> None:
    shares = {name: compare_recall(*random_head(400, 64, 0), name)[0] for name in ARITHMETICS}
    assert min(shares["float32_loop"], shares["float32_cdist"]) > 0.005
    assert shares["float64_literal"] == 0


def test_a_head_is_described_in_each_arithmetic() -> None:
    assert [line.partition(":")[0] for line in describe_head(32, 4).splitlines()] == list(ARITHMETICS)
