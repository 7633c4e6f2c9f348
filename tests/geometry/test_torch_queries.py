"""Counts of every query by PyTorch against the compiled kernel's: on a CUDA device where there is one."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from geometry.quantities import QueryMeasures, list_declared
from geometry.selection import every_query, scan, torch_queries
from geometry.selection.every_query import measure_queries
from tests.extract.memory import Held
from tests.geometry.draws import HEADS, draw_layer, extreme_head

HERE = torch.cuda.is_available()


@pytest.fixture(autouse=True, scope="module")
def _somewhere() -> Iterator[None]:
    """Without a CUDA device, its tensors are on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not HERE:

            class Here(torch_queries.TorchCounts):
                def __init__(self, keys: scan.Keys, _: str) -> None:
                    super().__init__(keys, "cpu")

            patch.setattr(torch_queries, "TorchCounts", Here)
        yield


def count_differences(weights: np.ndarray, values: np.ndarray, first: np.ndarray) -> int:
    """How many (count, head, query, N) are not those of the CPU; what does not follow from counts is the same."""
    (here, *right), (there, *found) = (
        measure_queries(weights.copy(), values, first, place=place) for place in ("cpu", "cuda")
    )
    wrong = int((np.array(found) != right).sum())
    for name in list_declared(QueryMeasures):
        if wrong == 0 or not name.endswith("_level"):
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    return wrong


@pytest.mark.one_case
@pytest.mark.parametrize("window", [48, 20])
def test_counts_and_measures_are_those_of_the_cpu(window: int) -> None:
    """In blocks of few queries, of two KV heads, from a later position on; also where a learned sink takes the rest."""
    for kind in HEADS:
        weights, values, first = draw_layer(kind, n=48, window=window, kv_heads=2, start=10)
        for share in (1.0, 0.3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(every_query, "PRODUCT_BYTES", 4 * 64 * 11 * 15)
                assert count_differences((share * weights).astype(np.float32), values, first) == 0, kind


def test_over_the_whole_range_of_float32_they_are_as_well() -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        weights, values = extreme_head(rng, np.float32)
        if len(weights) > 1:
            assert count_differences(weights[None, None], values[None], np.zeros(1, np.int64)) == 0


@pytest.mark.parametrize("part", ["the bound", "the keys that are hidden"])
def test_without_a_part_keys_are_miscounted(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: of whole numbers, whose distances are often equal, and where a window hides keys."""
    weights, values, first = draw_layer("confined", n=48, window=20)
    layer = weights, np.random.default_rng(1).integers(-2, 3, values.shape).astype(np.float32), first
    assert count_differences(*layer) == 0
    if part == "the bound":
        monkeypatch.setattr(torch_queries, "UNIT_ROUNDOFF", 0.0)
        monkeypatch.setattr(torch_queries, "TRIFLE", 0.0)
    else:
        count = torch_queries.count_within
        monkeypatch.setattr(torch_queries, "count_within", lambda low, high, of, _: count(low, high, of, ~of))
    assert count_differences(*layer) > 10


@pytest.mark.skipif(HERE, reason="counted by the device itself")
@pytest.mark.parametrize("at_once", [100, 5, 1])
def test_no_more_than_a_block_is_in_memory(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n, d, grid = 96, 8, every_query.make_grids(96).sizes.shape[1]
    monkeypatch.setattr(every_query, "PRODUCT_BYTES", 4 * n * grid * at_once)
    weights, values, first = draw_layer("random", n=n, window=n)
    with Held() as held:
        measure_queries(weights, values, first, place="cuda")
    rows = min(at_once, n - 1)
    bound = rows * (n * (torch_queries.PAIR_BYTES * grid + 64) + 16 * d * grid) + n * (16 * d + 8) + 2**12
    assert bound / 4 < held.most <= bound
