"""Concentration against the definitions in rational arithmetic and in 60 digits; ties, underflow, wrong readings."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geometry import concentration
from geometry.quantities import ROLES, Concentration, list_declared
from geometry.selection import concentration as effective_keys
from geometry.selection.concentration import estimate_concentration_bytes
from tests.geometry import oracle
from tests.geometry.draws import HEADS, Head, grouped, random_head, small_heads, softmax_rows
from tests.memory import trace

Numbers = dict[str, float]
SHARES = {"50": Fraction(1, 2), "90": Fraction(9, 10), "99": Fraction(99, 100)}
WHOLE = tuple(name for name, quantity in list_declared(Concentration).items() if quantity.dtype == "int32")
OF_KEYS = {"entropy": "entropy_keys", "effective": "effective_keys", "top": "top_weight", "index": "top_key"}
OF_KEYS |= {"role": "top_role", **{share: f"n_{share}" for share in SHARES}}
OF_CONTRIBUTORS = {"entropy": "entropy_contributors", "effective": "effective_contributors"}
OF_CONTRIBUTORS |= {"top": "top_contribution", "index": "top_contributor", "role": "top_contributor_role"}
OF_CONTRIBUTORS |= {share: f"contributors_{share}" for share in SHARES}


def spread(mass: list[Any], *, sink: bool, slack: Any = 0) -> Numbers:
    """The definitions, key by key, of exact or of very long numbers; a share short by ``slack`` of all is reached."""
    n, total = len(mass), sum(mass)
    if total == 0:
        return dict.fromkeys(("entropy", "effective", "top"), math.nan) | dict.fromkeys(("index", "role", *SHARES), -1)
    share = [float(x / total) for x in mass]
    entropy = math.fsum(-x * math.log(x) for x in share if x > 0)
    top = max(range(n), key=lambda key: (mass[key], -key))
    found: Numbers = {"entropy": entropy, "effective": math.exp(entropy), "top": max(share), "index": top}
    found["role"] = ROLES.index("last" if top == n - 1 else "sink" if sink and top == 0 else "other")
    for name, part in SHARES.items():
        falling = sorted(mass, reverse=True)
        wanted = total * part.numerator - slack * total
        found[name] = next(size for size in range(1, n + 1) if sum(falling[:size]) * part.denominator >= wanted)
    return found


def norms(weights: np.ndarray, values: np.ndarray) -> list[Decimal]:
    """‖α v‖ in 60 digits."""
    with localcontext(prec=60):
        squares = [sum(x**2 for x in y) for y in oracle.rational(weights, values)]
        return [(Decimal(square.numerator) / Decimal(square.denominator)).sqrt() for square in squares]


def literally(weights: np.ndarray, values: np.ndarray, *, sink: bool = True, slack: float = 0.0) -> Numbers:
    """All of ``Concentration``; contributors that tie within 40 digits count as tied."""
    exact = [Fraction(float(a)) for a in weights]
    found = {OF_KEYS[name]: number for name, number in spread(exact, sink=sink).items()}
    uniform = Fraction(1, len(exact))
    found["largest_deviation"] = float(max(abs(x / sum(exact) - uniform) for x in exact))
    with localcontext(prec=60):
        of_norms = spread(norms(weights, values), sink=sink, slack=Decimal(slack))
    return found | {OF_CONTRIBUTORS[name]: number for name, number in of_norms.items()}


def found(weights: np.ndarray, values: np.ndarray, *, sink: bool = True) -> Numbers:
    return {name: float(array) for name, array in vars(concentration(weights, values, sink=sink)).items()}


def differing(given: Numbers, wanted: Numbers) -> set[str]:
    """The names of what differs by more than rounding."""
    assert given.keys() == wanted.keys()
    return {
        name
        for name, right in wanted.items()
        if given[name] != pytest.approx(right, rel=0 if name in WHOLE else 1e-12, abs=1e-15, nan_ok=True)
    }


@pytest.mark.parametrize("kind", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(("n", "d", "sink", "exponent"), [(3, 1, False, -900), (40, 6, True, 900)])
def test_equals_the_definitions(kind: Head, n: int, d: int, sink: bool, exponent: int) -> None:
    """In any unit of the value states, also where squares of float64 overflow or vanish."""
    weights, values = kind(n, d, n + d)
    values = np.ldexp(values.astype(np.float64), exponent)
    assert differing(found(weights, values, sink=sink), literally(weights, values, sink=sink)) == set()


@given(small_heads())
def test_ties_count_as_in_exact_arithmetic(head: tuple[np.ndarray, np.ndarray]) -> None:
    """Sums of different norms that tie in real arithmetic alone are the only ones that may fall either way."""
    given, wanted = found(*head), literally(*head, slack=1e-40)
    strict = literally(*head, slack=-1e-40)
    either = {name for name in (f"contributors_{share}" for share in SHARES) if wanted[name] != strict[name]}
    assert differing(given, wanted) <= either
    assert all(wanted[name] <= given[name] <= strict[name] for name in either)


@given(st.lists(st.sampled_from([0, 2**-149, 2**-140, 2**-126, 1e-30, 2**-24, 0.125, 0.25]), min_size=1, max_size=7))
def test_the_smallest_weights_decide_ties(drawn: list[float]) -> None:
    """A sum in float64 loses what lies beyond its 53 bits."""
    weights = np.array([0.25, *drawn], np.float32)
    head = weights, np.ones((weights.size, 2))
    assert weights.sum() > 1 or differing(found(*head), literally(*head)) == set()


class TestControls:
    """Wrong readings of each definition, which the comparison above must tell from the right one."""

    weights, values = random_head(40, 6, 1)

    def test_without_whole_numbers_ties_are_missed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        weights = np.full(10, 0.1, np.float32)
        assert concentration(weights, np.ones((10, 1))).n_90 == 9
        weights = np.array([0.5, 0.5, 2**-149], np.float32)
        assert concentration(weights, np.ones((3, 1))).n_50 == 2
        monkeypatch.setattr(
            effective_keys, "_sum_exactly", lambda numbers: [int(2**60 * x) for x in np.cumsum(numbers)]
        )
        assert concentration(weights, np.ones((3, 1))).n_50 == 1

    @pytest.mark.parametrize(
        ("reading", "changed"),
        [
            (lambda a, v: literally(a, v, sink=False), {"top_role", "top_contributor_role"}),
            (
                lambda a, v: literally(a, np.ones_like(v)),
                {"entropy_contributors", "top_contribution", "contributors_50"},
            ),
            (lambda a, v: literally(np.append(a, [0.3]), np.append(v, v[:1], axis=0)), {"entropy_keys", "top_weight"}),
        ],
        ids=["the sink is any key", "without values", "a learned sink as a key"],
    )
    def test_wrong_readings_differ(
        self, reading: Callable[[np.ndarray, np.ndarray], Numbers], changed: set[str]
    ) -> None:
        weights, values = self.weights, self.values.copy()
        values[0] *= 30  # the sink has the largest weight and contributes most
        assert changed <= differing(found(weights, values), reading(weights, values))

    def test_norms_before_products_would_break_ties(self) -> None:
        """α v is equal for both keys; α ‖v‖ is not, in float64."""
        weights, values = np.array([1, 3, 1], np.float32) / 64, np.array([[3, 3], [1, 1], [0, 0]], np.float32)
        lengths = weights * np.linalg.norm(values.astype(float), axis=1)
        assert lengths[0] != lengths[1]
        spread = concentration(weights, values)
        assert (spread.top_contributor, spread.contributors_50, spread.top_contribution) == (0, 1, 0.5)
        turned = concentration(weights[[1, 0, 2]], values[[1, 0, 2]])
        assert turned.top_contributor == 0


@pytest.mark.parametrize(("heads", "n", "spread"), [(16, 2048, 0.0), (1, 8192, 300.0)])
def test_memory_is_bounded(heads: int, n: int, spread: float) -> None:
    """Also where all weights are equal, or so different that their sums need a thousand bits, in every head."""
    logits = spread * np.random.default_rng(0).standard_normal((heads, n))
    weights, values = softmax_rows(logits), np.ones((n, 2), np.float32)
    concentration(np.full((1, 4), 0.25), values[:4])
    _, peak = trace(lambda: concentration(weights, values))
    bound = estimate_concentration_bytes(heads, n)
    assert peak <= bound
    assert peak > bound / 4 or heads == 1


def test_one_key_holds_everything_and_is_the_last() -> None:
    one = np.array([0.4]), np.ones((1, 3))
    assert differing(found(*one), literally(*one)) == set()


def test_nothing_contributes_where_all_values_are_zero() -> None:
    weights, values = grouped(random_head, 2, 2, 8, 3)
    values[1] = 0
    spread = concentration(weights, values)
    for name, quantity in list_declared(Concentration).items():
        array = getattr(spread, name)
        absent = np.isnan(array) if array.dtype == np.float64 else array == -1
        assert (array.shape, array.dtype) == ((2, 2), np.int32 if name in WHOLE else np.float64)
        np.testing.assert_array_equal(absent, [[False] * 2, [quantity.missing is not None] * 2], err_msg=name)
