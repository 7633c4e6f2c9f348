"""The scan's error bound holds, and strips of the cosines make no difference."""

from collections.abc import Iterator

import numpy as np
import pytest

from geometry import selection_counts, selection_profile
from geometry.selection import scan
from geometry.selection.scan import Head, Keys, Strip
from geometry.selection.upper_bounds import NEAR_0, XI_SMALL, XI_STAR, bound_probability
from tests.geometry import oracle
from tests.geometry.comparison import departures
from tests.geometry.draws import HEADS, extreme_head, grouped


def iterate_energies(head: Head, keys: Keys) -> Iterator[tuple[int, np.ndarray, np.ndarray, float, float, float]]:
    """N, E about s and about s without the sink, the sizes of both and Σ of that of the tile, for every N."""
    n = len(head.a)
    strip, room, first, begun, sizes = Strip(keys.cosines, 0, 0, 0, n), scan.make_room(n), 0, 0, [0.0, 0.0, 0.0]
    sums = 0.0
    scan.clear(head, strip, room)
    while first < n - 1:
        if first == head.sink:
            sizes[0] += head.a[0]
            scan.place_sink(strip, head.a[0], room)
        if first in (0, head.sink) or first + scan.STEP - begun > scan.TILE or sizes[2] > scan.TILE_SHARE * sizes[1]:
            scan.begin_tile(room, n)
            begun, sizes[2] = first, 0.0
        last = scan.choose_step(head, first, room.keys, room.weights)
        scan.advance(strip, room.keys, room, True)
        for b in range(last - first):
            sizes = [size + float(room.weights[b]) / 2 for size in sizes]
            sums += sizes[2]
            yield first + b + 1, room.about_all[b, :n].copy(), room.about_rest[b, :n].copy(), *sizes[:2], sums
        first = last


def error_shares(weights: np.ndarray, values: np.ndarray, *, sink: bool, **wrong: float) -> list[float]:
    """|E − E in rational arithmetic| over its bound, for every key of every row; 9 where E of y = 0 is not 0."""
    keys = scan.prepare_keys(values)
    (head,) = scan.arrange(weights[None], keys, sink=sink)
    assert head[-4:] == (scan.SLOPE, scan.SLOPE_OF_SUMS, scan.BEND, scan.TRIFLE)
    head = head._replace(**wrong)
    y = oracle.rational(head.alpha, keys.states)
    shares = []
    for size, *energies, of_all, of_rest, sums in iterate_energies(head, keys):
        for energy, reach, without in zip(energies, (of_all, of_rest), (False, sink), strict=True):
            chosen = [key for key in head.order[:size] if key > 0 or not without]
            slopes = head.slope * reach + head.slope_of_sums * sums
            bound = head.least.astype(float) * (slopes + head.bend * head.a.max() + head.trifle)
            shares += oracle.exceed_bound(y, chosen, energy, bound, head.factor)
    return shares


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_error_bound_holds_and_is_no_mere_guess(kind: type) -> None:
    """Against rational arithmetic, over the range of float32 and far beyond; it is not a hundred times too wide."""
    rng, shares = np.random.default_rng(5), []
    for _ in range(15):
        shares += error_shares(*extreme_head(rng, kind), sink=bool(rng.integers(2)))
    assert max(shares) <= 1
    assert max(shares) > 0.01


@pytest.mark.parametrize(
    ("wrong", "floor"),
    [
        ({"slope": 0.0, "slope_of_sums": 0.0, "trifle": 0.0}, scan.FLOOR),
        ({"bend": 0.0, "trifle": 0.0}, scan.FLOOR),
        ({}, 0.0),
    ],
)
def test_an_error_bound_without_one_of_its_parts_or_a_floor_would_not_hold(
    wrong: dict[str, float], floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FLOOR", floor)
    rng = np.random.default_rng(5)
    assert any(max(error_shares(*extreme_head(rng, np.float64), sink=True, **wrong)) > 1 for _ in range(60))


@pytest.mark.one_case
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("sink", [True, False])
def test_strips_make_no_difference(kind: str, sink: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips of 9 keys, which end within steps; several heads share each. Counts alone are those of a profile."""
    weights, values = grouped(HEADS[kind], 2, 3, 60, 8)
    monkeypatch.setattr(scan, "STRIP_BYTES", 4 * 60 * 9)
    counts, profile = selection_counts(weights, values), selection_profile(weights, values, kappas=(0.5, 50), sink=sink)
    assert vars(counts).keys() == {"k_in", "k_out", "r_min", "r_max"}
    for name in ("r_min", "r_max"):  # closer than to the oracle
        np.testing.assert_allclose(getattr(counts, name), getattr(profile, name), rtol=1e-12, atol=1e-15)
    for at in np.ndindex(2, 3):
        expected = oracle.profile(weights[at], values[at[0], 0], kappas=(0.5, 50), sink=sink)
        for found, names in ((profile, expected.keys()), (counts, vars(counts).keys())):
            given = type(found)(**{name: array[at] for name, array in vars(found).items()})
            assert departures(given, {name: expected[name] for name in names}) == {}


def test_p_is_that_of_the_definition() -> None:
    xi = np.concatenate([np.linspace(0, 12, 20001), [XI_SMALL, XI_STAR, 100.0, 1e30]]).astype(np.float32)
    found = np.array([bound_probability(x) for x in xi])
    np.testing.assert_allclose(found, oracle.p(xi.astype(float)), rtol=0, atol=1e-7)
    assert abs(xi[found.argmax()] - XI_STAR) < 1e-2
    small = np.linspace(0, XI_STAR, 1001)
    polynomial = np.polynomial.polynomial.polyval(small**2, NEAR_0) * small / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(polynomial, oracle.p(small), rtol=0, atol=1e-7)
    assert oracle.p(XI_SMALL) < 1e-18
