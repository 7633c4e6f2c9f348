"""What PyTorch computes against the definitions and the CPU's numbers: on a CUDA device where there is one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from geometry import SelectionProfile, selection_profile
from geometry.quantities import QueryMeasures, list_declared
from geometry.selection import every_query, scan, torch_queries, torch_scan
from geometry.selection.every_query import measure_queries
from geometry.selection.upper_bounds import compute_steepness
from geometry.separation import comparisons
from geometry.separation.chance import NULLS, separability, separation
from tests.extract.memory import Held
from tests.geometry import oracle, separation_oracle
from tests.geometry.comparison import COSINES, COUNTS, UPPER, departures
from tests.geometry.draws import HEADS, aligned_head, draw_layer, extreme_head, grouped, repeated_head, small_heads

HERE = torch.cuda.is_available()


@pytest.fixture(autouse=True, scope="module")
def _somewhere() -> Iterator[None]:
    """Without a CUDA device, its tensors are on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not HERE:
            scans, counts, sort = torch_scan.TorchScan, torch_queries.TorchCounts, comparisons.sort_energies_on_device
            patch.setattr(torch_scan, "TorchScan", lambda keys, _: scans(keys, "cpu"))
            patch.setattr(torch_queries, "TorchCounts", lambda keys, _: counts(keys, "cpu"))
            patch.setattr(
                comparisons, "sort_energies_on_device", lambda keys, *of: sort(keys._replace(place="cpu"), *of)
            )
            patch.setattr(torch.cuda, "is_available", lambda: True)
        yield


# The Gram scan


def profile(weights: Any, values: Any, **settings: Any) -> SelectionProfile:
    return selection_profile(weights, values, device="cuda", **settings)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("n", "d", "settings"),
    [
        (60, 16, {"kappas": (0.05, 500.0)}),
        (2, 8, {}),
        (3, 1, {"kappas": ()}),
        (17, 5, {"kappas": (0.5, 30.0), "scale": "raw", "sink": False}),
    ],
)
def test_equals_the_definitions(n: int, d: int, settings: dict[str, Any]) -> None:
    for kind, draw in HEADS.items():
        weights, values = draw(n, d, n + d)
        found = departures(profile(weights, values, **settings), oracle.profile(weights, values, **settings))
        assert found == {}, kind


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("sink", [True, False])
def test_strips_of_heads_that_share_value_states_make_no_difference(
    sink: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strips of 7 ranks of 3 heads of 40 keys, and no matrix of all pairs of these."""
    monkeypatch.setattr(torch_scan, "STRIP_BYTES", torch_scan.PAIR_BYTES * 7 * 40 * 3)
    monkeypatch.setattr(torch_scan, "GRAM_BYTES", 8 * 39**2)
    for kind in ("random", "twins", "zeroed"):
        weights, values = grouped(HEADS[kind], 2, 3, 40, 6)
        whole = profile(weights, values, kappas=(0.5, 50), sink=sink)
        for at in np.ndindex(2, 3):
            given = SelectionProfile(**{name: array[at] for name, array in vars(whole).items()})
            expected = oracle.profile(weights[at], values[at[0], 0], kappas=(0.5, 50), sink=sink)
            assert departures(given, expected) == {}, kind


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_counts_over_the_whole_range_are_those_of_the_cpu(kind: type) -> None:
    """Weights and value states far beyond float32 apart, subnormal numbers among them; of a scan and of every query."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        weights, values = extreme_head(rng, kind)
        found, expected = profile(weights, values), selection_profile(weights, values)
        for name in COUNTS:
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        if kind is np.float32:
            assert count_differences(weights[None, None], values[None], np.zeros(1, np.int64)) == 0


def near_states(n: int, d: int, seed: int) -> np.ndarray:
    """Value states that differ in the last bits of their components."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d) * (1 + 1e-15 * rng.standard_normal((n, d)))


class TestControls:
    """Keys that float64 energies cannot tell apart."""

    heads = tuple((np.full(8, 1 / 8), near_states(8, 40, seed)) for seed in range(6))

    def share_wrong(self) -> float:
        """Of (count, head, N) that are not those of rational arithmetic."""
        pairs = [(vars(profile(*head, kappas=())), oracle.exact_counts(*head)) for head in self.heads]
        return float(np.mean([found[name] != right[name] for found, right in pairs for name in COUNTS]))

    def test_they_are_told_apart(self) -> None:
        assert self.share_wrong() == 0

    @pytest.mark.parametrize("part", ["slope and bend", "settling"])
    def test_without_a_part_they_are_miscounted(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if part == "settling":
            monkeypatch.setattr(torch_scan, "count_about", count_without_error)
        else:
            monkeypatch.setattr(torch_scan, "UNIT_ROUNDOFF", 0.0)
            monkeypatch.setattr(torch_scan, "TRIFLE", 0.0)
        assert self.share_wrong() > 0.02

    def test_without_the_keys_between_bounds_are_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        head, settings = aligned_head(30, 4, 1), {"kappas": (300.0, 1e5)}
        expected = oracle.profile(*head, **settings)
        assert departures(profile(*head, **settings), expected) == {}
        monkeypatch.setattr(torch_scan, "find_largest_between", lambda g, *_: torch.zeros_like(g))
        assert set(departures(profile(*head, **settings), expected)) == set(UPPER)


def count_without_error(e: torch.Tensor, key: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    """As ``count_about`` if energies had no error: no row is left undecided."""
    value = e.gather(-1, key[..., None])
    return torch.stack([key, (e < value).sum(-1), torch.ones_like(key)])


def scan_steeply(n: int, d: int, heads: int) -> None:
    """A scan of heads of which most rows have keys between, which takes the most memory."""
    values = aligned_head(n, d, 0)[1]
    keys = scan.prepare_keys(values, multiply=False)
    arranged = scan.arrange(np.stack([aligned_head(n, d, seed)[0] for seed in range(heads)]), keys, sink=True)
    steepness = [compute_steepness((300.0, 1e5), np.full(n - 1, 4.0), d, of.factor) for of in arranged]
    torch_scan.TorchScan(keys, "cuda")(keys, arranged, steepness)


def bound_memory(n: int, d: int, heads: int) -> int:
    """What a scan takes at most: matrix, strip, and vectors of keys and heads."""
    strip = max(torch_scan.STRIP_BYTES, torch_scan.PAIR_BYTES * n * heads)
    return min(8 * n * n, torch_scan.GRAM_BYTES) + strip + n * (16 * d + 128 * heads) + 2**16


@pytest.mark.one_case(others="long")
@pytest.mark.skipif(HERE, reason="counted by the device itself")
@pytest.mark.parametrize(("strip", "gram"), [(2**20, 2**28), (2**20, 0), (1, 0)])
def test_a_scan_holds_no_more_than_a_strip(strip: int, gram: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_scan, "STRIP_BYTES", strip)
    monkeypatch.setattr(torch_scan, "GRAM_BYTES", gram)
    with Held() as held:
        scan_steeply(90, 16, 3)
    assert bound_memory(90, 16, 3) / 8 < held.most <= bound_memory(90, 16, 3)


@given(small_heads())
def test_counts_are_those_of_exact_arithmetic(head: tuple[np.ndarray, np.ndarray]) -> None:
    found = profile(*head, kappas=(1e-300,), scale="raw")
    for name, expected in oracle.exact_counts(*head).items():
        np.testing.assert_array_equal(getattr(found, name), expected)


# Counts of every query


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
def test_counts_and_measures_of_queries_are_those_of_the_cpu(window: int) -> None:
    """In blocks of few queries, of two KV heads, from a later position on; also where a learned sink takes the rest."""
    for kind in HEADS:
        weights, values, first = draw_layer(kind, n=48, window=window, kv_heads=2, start=10)
        for share in (1.0, 0.3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(every_query, "PRODUCT_BYTES", 4 * 64 * 11 * 15)
                assert count_differences((share * weights).astype(np.float32), values, first) == 0, kind


@pytest.mark.parametrize("part", ["the bound", "the keys that are hidden"])
def test_without_a_part_keys_of_queries_are_miscounted(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_no_more_than_a_block_of_queries_is_in_memory(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n, d, grid = 96, 8, every_query.make_grids(96).sizes.shape[1]
    monkeypatch.setattr(every_query, "PRODUCT_BYTES", 4 * n * grid * at_once)
    weights, values, first = draw_layer("random", n=n, window=n)
    with Held() as held:
        measure_queries(weights, values, first, place="cuda")
    rows = min(at_once, n - 1)
    bound = rows * (n * (torch_queries.PAIR_BYTES * grid + 64) + 16 * d * grid) + n * (16 * d + 8) + 2**12
    assert bound / 4 < held.most <= bound


# AUC, measures and nulls


@pytest.mark.one_case
@pytest.mark.parametrize("sink", [True, False])
def test_measures_and_nulls_are_those_of_the_cpu(sink: bool) -> None:
    """The same numbers from both paths, for heads that share value states."""
    for kind, draw in HEADS.items():
        for n, d, sizes in ((2, 8, [1]), (3, 1, [1, 2]), (30, 3, [2, 7])):
            weights, values = grouped(draw, 2, 2, n, d)
            here, there = (
                separability(weights, values, sizes, draws=2, seed=4, sink=sink, device=device)
                for device in ("cpu", "cuda")
            )
            for name in ("observed", *NULLS):
                np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=kind)


def test_without_the_error_bound_ties_are_miscounted(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, sizes = [repeated_head(14, 4, seed) for seed in range(4)], list(range(1, 14))
    expected = [separation_oracle.observed(*head, sizes)[-1] for head in heads]
    np.testing.assert_array_equal([separation(*head, sizes, device="cuda") for head in heads], expected)
    monkeypatch.setattr(comparisons, "error_factors", lambda _d: (-1.0, 0.0))
    found = [separation(*head, sizes, device="cuda") for head in heads]
    assert np.mean(np.array(found) != expected) > 0.05


# What needs a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not HERE, reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_heads_equal_those_of_the_cpu(dtype: torch.dtype) -> None:
    """The profile, measures and nulls."""
    drawn = [draw(1024, 128, 5) for draw in HEADS.values()]
    weights, values = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
    values = values.to(dtype)
    here, there = (separability(weights, values, draws=2, seed=1, device=device) for device in ("cpu", "cuda"))
    for name in ("observed", *NULLS):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    arrays, settings = (weights.cuda(), values.cuda()), {"kappas": (0.5, 500.0)}
    found, expected = (selection_profile(*arrays, device=device, **settings) for device in (None, "cpu"))
    for name, right in vars(expected).items():
        size = 1.0 if name in (*COSINES, *UPPER, "rho_out") else np.nanmax(np.abs(right))
        near = 0 if name in COUNTS else 2e-6 * size
        np.testing.assert_allclose(getattr(found, name), right, rtol=0, atol=near, err_msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(not HERE, reason="there is no CUDA device")
@pytest.mark.parametrize(("n", "d", "heads"), [(1024, 128, 12), (8192, 64, 2), (77, 256, 16)])
def test_memory_on_the_device(n: int, d: int, heads: int) -> None:
    scan_steeply(n, d, heads)  # the library of matrix products takes its share
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    scan_steeply(n, d, heads)
    assert torch.cuda.max_memory_allocated() - before <= bound_memory(n, d, heads)
