"""Every query of a head against the definitions, read one query at a time."""

import numpy as np
import pytest

from geometry import concentration
from geometry.grids import average_over_ln_n, half_octave_grid
from geometry.quantities import QueryMeasures, list_declared
from geometry.selection import every_query, scan
from geometry.selection.every_query import Contexts, estimate_block_bytes, measure_queries
from geometry.selection.keys import error_slope
from tests.geometry import oracle
from tests.geometry.draws import HEADS, draw_layer, extreme_head
from tests.memory import trace


def count_differences(weights: np.ndarray, values: np.ndarray, first: np.ndarray) -> tuple[int, int]:
    """How many (head, query, N) have other counts than the oracle, and how many there are."""
    _, *given = measure_queries(weights.copy(), values, first)
    wrong, total, group = 0, 0, len(weights) // len(values)
    for head, of_head in enumerate(weights):
        for row, (of_query, begin) in enumerate(zip(of_head, first, strict=True)):
            seen = slice(int(begin), weights.shape[2] - len(of_head) + row + 1)
            grid = half_octave_grid(seen.stop - seen.start)
            sure = oracle.sure_counts(of_query[seen], values[head // group][seen], grid)
            found = [counts[head, row, : len(grid)] for counts in given]
            assert all((counts[head, row, len(grid) :] == -1).all() for counts in given)
            wrong += int(((found[0] != sure["k_in"]) | (found[1] != sure["k_out"])).sum())
            total += len(grid)
    return wrong, total


class TestCounts:
    @pytest.mark.parametrize("window", [64, 20])
    @pytest.mark.parametrize("kind", HEADS)
    def test_are_exact_at_every_query_and_number_of_the_grid(
        self, kind: str, window: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that a window hides keys from, in blocks of few queries."""
        if window == 20:
            monkeypatch.setattr(every_query, "PRODUCT_BYTES", 4 * 64 * 12 * 5)
        wrong, total = count_differences(*draw_layer(kind, n=64, window=window))
        assert wrong == 0
        assert total > 1000

    def test_are_those_of_each_kv_head_and_of_a_later_block_also_with_learned_sinks(self) -> None:
        weights, values, first = draw_layer("random", n=48, window=48, kv_heads=3, start=30)
        for share in (1.0, 0.3):
            assert count_differences((share * weights).astype(np.float32), values, first)[0] == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["assumed", "twins"])
    def test_are_exact_in_longer_texts(self, kind: str) -> None:
        assert count_differences(*draw_layer(kind, n=300, window=300, group=1))[0] == 0

    @pytest.mark.parametrize("kind", ["repeated", "random"])
    def test_with_ties_to_the_later_key_would_not_be(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A control: of equal weights the later one comes first. Without ties it makes no difference."""

        def sort_wrongly(weights: np.ndarray, first_keys: np.ndarray) -> np.ndarray:
            positions = np.arange(weights.shape[1])
            last = weights.shape[1] - len(weights) + np.arange(len(weights))[:, None]
            seen = (first_keys[:, None] <= positions) & (positions <= last)
            later = np.where(seen, weights, -1)[:, ::-1]
            return np.ascontiguousarray(weights.shape[1] - 1 - np.argsort(-later, axis=-1, kind="stable"))

        monkeypatch.setattr(every_query, "sort_rows", sort_wrongly)
        assert (count_differences(*draw_layer(kind, n=64, window=64))[0] > 0) == (kind == "repeated")

    def test_from_coarser_directions_than_the_bound_assumes_would_not_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A control: u is rounded to 1/256."""
        monkeypatch.setattr(every_query, "normalise", lambda *given: np.round(256 * scan.normalise(*given)) / 256)
        assert count_differences(*draw_layer("assumed", n=64, window=64))[0] > 0


def error_shares(weights: np.ndarray, values: np.ndarray, *, sums: float = 1.0, bend: float = 1.0) -> list[float]:
    """|E − E in rational arithmetic| over its bound, for every key and N of a query; 9 where E of y = 0 is not 0.

    sums, bend: factors of two parts of the bound; ``TRIFLE`` is left out where one is not 1.
    """
    n, grid, keys = len(weights), half_octave_grid(len(weights)), scan.prepare_keys(values)
    factor = 2.0 ** (scan.LIFT - int(np.frexp(keys.norm.max())[1]))
    order, first = every_query.sort_rows(weights[None], np.zeros(1, np.int64)), np.zeros(1, np.int64)
    block = every_query.Block(n - 1, first, weights[None], order, grid[None])
    room = every_query.make_room(1, len(grid), *values.shape)
    every_query.sum_block(block, keys, factor, room)
    a, least, left, selected = np.zeros((4, n), np.float32)
    size, largest = every_query.place_norms(weights, factor * keys.norm, a, least, left)
    along = room.sums @ scan.normalise(keys.states, keys.norm).astype(np.float32).T
    y, shares = oracle.rational(weights, values), []
    for split, e, reach in zip(grid, along, room.reach, strict=True):
        every_query.place_energies(a, least, left, selected, np.float32(0), e)
        whole = sums * reach + error_slope(n, 2.0**-53) * size + bend * scan.BEND * largest
        bound = least.astype(float) * (whole + scan.TRIFLE * (sums == bend == 1))
        shares += oracle.exceed_bound(y, order[0, :split], e, bound, factor)
    return shares


@pytest.mark.parametrize("wrong", [{}, {"sums": 0.0}, {"bend": 0.0}], ids=["whole", "without sums", "without bend"])
def test_the_error_bound_holds_and_needs_its_parts(wrong: dict[str, float]) -> None:
    """Against rational arithmetic, over the range of float32; it is not a hundred times too wide."""
    rng = np.random.default_rng(5)
    most = max(max(error_shares(*extreme_head(rng, np.float32), **wrong)) for _ in range(30))
    assert most > 1 if wrong else 0.01 < most <= 1


def measure_slowly(weights: np.ndarray, values: np.ndarray, first: int) -> dict[str, float]:
    """The measures of one query by the definitions; weights (n,), values (n, d) of the keys it sees."""
    n, alpha, states = len(weights), weights.astype(np.float64), values.astype(np.float64)
    grid, spread = half_octave_grid(n), concentration(weights, values, sink=first == 0)
    sure = oracle.sure_counts(weights, values, grid)
    inside, output, unseen = oracle.selected(weights, 16), alpha @ states, max(0.0, 1 - alpha.sum())
    kept = alpha[inside] @ states[inside] / (alpha[inside].sum() + unseen)
    curves = {
        "recall_level": sure["k_in"] / grid,
        "specificity_level": 1 - sure["k_out"] / (n - grid),
        "precision_excess_level": (grid / (grid + sure["k_out"]) - grid / n) / (1 - grid / n),
    }
    return {
        "n_keys": n,
        **{name: float(average_over_ln_n(curve, grid)) for name, curve in curves.items()},
        "effective_keys": float(spread.effective_keys),
        "n_90": float(spread.n_90),
        "sink_weight": alpha[0] if first == 0 else np.nan,
        "self_weight": alpha[-1],
        "previous_weight": alpha[-2],
        "top_position": first + float(spread.top_key),
        "top_weight": float(spread.top_weight),
        "output_norm": float(np.linalg.norm(output)),
        "error_renormalised_16": float(np.linalg.norm(output - kept) / np.linalg.norm(output)) if n > 16 else np.nan,
    }


@pytest.mark.parametrize(("kind", "window", "share"), [("random", 40, 1.0), ("assumed", 99, 1.0), ("random", 99, 0.4)])
def test_measures_are_those_of_the_definitions(kind: str, window: int, share: float) -> None:
    """Of full weights, and where a learned sink takes the rest."""
    weights, values, first = draw_layer(kind, n=60, window=window)
    weights = (share * weights).astype(np.float32)
    found, *_ = measure_queries(weights.copy(), values, first)
    for head, row in np.ndindex(weights.shape[:2]):
        seen = slice(int(first[row]), row + 2)
        expected = measure_slowly(weights[head, row, seen], values[0][seen], int(first[row]))
        assert set(expected) == set(list_declared(QueryMeasures))
        for name, right in expected.items():
            given = getattr(found, name)[head, row]
            assert np.isclose(given, right, rtol=1e-5, atol=1e-6, equal_nan=True), (name, head, row)


@pytest.mark.parametrize("window", [70, 20])
def test_means_by_context_are_those_of_its_queries(window: int) -> None:
    """In two blocks of queries, for every class of context and N."""
    weights, values, first = draw_layer("random", n=70, window=window)
    _, k_in, k_out = measure_queries(weights.copy(), values, first)
    contexts, n = Contexts.of(np.concatenate([[0], first])), np.arange(2, 71) - first
    assert contexts.sizes.tolist() == half_octave_grid(70)[:-1].tolist()
    found = contexts.average(k_in[:, :30], k_out[:, :30], slice(1, 31))
    found += contexts.average(k_in[:, 30:], k_out[:, 30:], slice(31, 70))
    for context, at in np.ndindex(contexts.counts.shape):
        size, largest = contexts.sizes[at], 2 ** (context + 1)
        rows = (n > largest // 2) & (n <= largest) & (n > size)
        assert contexts.counts[context, at] == rows.sum()
        inside, outside = k_in[:, rows, at], k_out[:, rows, at]
        rates = size / (size + outside), inside / size, (n[rows] - size - outside) / (n[rows] - size)
        for rate, given in zip(rates, found, strict=True):
            np.testing.assert_allclose(given[:, context, at], rate.mean(axis=-1) if rows.any() else 0, rtol=1e-12)


def test_a_query_with_one_key_has_no_level() -> None:
    found, *counts = measure_queries(*draw_layer("random", n=8, window=1))
    assert (np.array(counts) == -1).all()
    assert np.isnan([found.recall_level, found.previous_weight, found.error_renormalised_16]).all()
    assert (found.n_keys == 1).all()
    assert (found.top_position == np.arange(1, 8)).all()


def test_a_query_whose_weights_are_all_0_has_no_spread() -> None:
    """As where a learned sink takes everything; the queries beside it are not touched."""
    weights, values, first = draw_layer("random", n=24, window=24)
    whole, *_ = measure_queries(weights.copy(), values, first)
    weights[1, 20] = 0
    found, k_in, k_out = measure_queries(weights, values, first)
    none = {"effective_keys", "n_90", "top_weight", "error_renormalised_16"}
    for name in list_declared(QueryMeasures):
        of_query = getattr(found, name)[1, 20]
        assert np.isnan(of_query) == (name in none), name
        others = (np.delete(getattr(measured, name), 20, axis=1) for measured in (found, whole))
        np.testing.assert_array_equal(*others, err_msg=name)
    assert [found.output_norm[1, 20], found.sink_weight[1, 20], found.top_position[1, 20]] == [0, 0, 0]
    grid = half_octave_grid(22)  # all keys are at s_N: every radius has them all
    np.testing.assert_array_equal([k_in[1, 20, : len(grid)], k_out[1, 20, : len(grid)]], [grid, 22 - grid])


@pytest.mark.parametrize(("n", "rows", "d"), [(64, 63, 8), (700, 200, 64)])
def test_memory_is_that_of_the_bound(n: int, rows: int, d: int) -> None:
    """Whatever the number of heads."""
    rng = np.random.default_rng(0)
    values, first = rng.standard_normal((1, n, d)).astype(np.float32), np.zeros(rows, np.int64)
    weights = np.tri(rows, n, n - rows, dtype=np.float32) / n
    weights = np.stack([weights, weights])
    every_query.make_grids(n)
    measure_queries(weights[:, :3, : n - rows + 3].copy(), values[:, : n - rows + 3], first[:3])  # compiled before
    results, peak = trace(lambda: measure_queries(weights, values, first))
    held = sum(array.nbytes for array in (*vars(results[0]).values(), *results[1:]))
    assert peak - held <= estimate_block_bytes(rows, n, d)
