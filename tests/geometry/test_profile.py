"""selection_profile against the definitions: oracle, ties, awkward heads, bad input, and controls that must fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geometry.profile
from geometry import PROFILE, SelectionProfile, selection_profile
from tests.geometry import oracle
from tests.geometry.draws import assumed_head, confined_head, random_head

COUNTS = ("k_in", "k_out")
HEADS = {
    "random": random_head,
    "assumed": assumed_head,
    "confined": confined_head,
}


def disagreement(profile: SelectionProfile, expected: dict[str, np.ndarray]) -> float:
    """Share of (count, N) in which two profiles differ."""
    return float(np.mean([getattr(profile, name) != expected[name] for name in COUNTS]))


def assert_matches(profile: SelectionProfile, expected: dict[str, np.ndarray], scale: float) -> None:
    assert disagreement(profile, expected) == 0
    for name in PROFILE[2:]:
        tolerance = 1e-12 if name.startswith("cos") else 1e-12 * scale
        np.testing.assert_allclose(getattr(profile, name), expected[name], rtol=1e-6, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("n", "d"), [(2, 8), (3, 1), (17, 8), (96, 16), (160, 64)])
@pytest.mark.parametrize("sink", [True, False])
def test_equals_the_definitions(kind: str, n: int, d: int, sink: bool) -> None:
    weights, values = HEADS[kind](n, d, seed=n + d)
    expected = oracle.profile(weights, values, sink=sink)
    assert_matches(selection_profile(weights, values, sink=sink), expected, np.abs(values).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type_is_taken_at_its_own_value(dtype: type) -> None:
    weights, values = (array.astype(dtype) for array in random_head(80, 8, seed=1))
    assert_matches(selection_profile(weights, values), oracle.profile(weights, values), 10)


def test_bfloat16_values() -> None:
    weights, values = random_head(80, 8, seed=2)
    values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert_matches(selection_profile(weights, values), oracle.profile(weights, values), 10)


class TestControls:
    """What the comparison above would miss if it could not fail: each mutation must be noticed."""

    weights, values = confined_head(160, 8, seed=3)

    def expected(self) -> dict[str, np.ndarray]:
        return oracle.profile(self.weights, self.values)

    def test_without_the_error_bound_float32_miscounts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert disagreement(selection_profile(self.weights, self.values), self.expected()) == 0
        monkeypatch.setattr(geometry.profile, "error_slope", lambda _d: 0.0)
        monkeypatch.setattr(geometry.profile, "ERROR_BEND", 0.0)
        monkeypatch.setattr(geometry.profile, "TINY", np.float32(0))
        assert disagreement(selection_profile(self.weights, self.values), self.expected()) > 0.01

    def test_plain_float32_distances_miscount(self) -> None:
        y = (self.weights[:, None] * self.values).astype(np.float32)
        order = np.argsort(-self.weights, kind="stable")
        wrong = []
        for size in range(1, len(y)):
            distance = ((y[order[:size]].sum(0) - y) ** 2).sum(1)
            wrong.append((distance[order[:size]] <= distance[order[size:]].min()).sum())
        assert np.mean(np.array(wrong) != self.expected()["k_in"]) > 0.01

    def test_open_balls_are_told_from_closed_ones(self) -> None:
        weights, values = np.full(6, 1 / 8), np.ones((6, 2))
        profile = selection_profile(weights, values)
        assert profile.k_in.tolist() == [1, 2, 3, 4, 5]  # an open ball would hold none of the equally far keys
        assert profile.k_out.tolist() == [5, 4, 3, 2, 1]

    def test_another_order_of_ties_is_noticed(self) -> None:
        weights = np.array([0.25, 0.25, 0.25, 0.25])
        values = np.random.default_rng(0).standard_normal((4, 2))
        np.testing.assert_allclose(selection_profile(weights, values).norm_s[0], np.linalg.norm(values[0]) / 4)
        assert disagreement(selection_profile(weights, values[::-1]), oracle.profile(weights, values)) > 0


def small_heads() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Weights in 64ths, many of them equal or 0, and small whole values, many repeated: every sum is exact."""

    def build(n: int) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
        weight = st.sampled_from([0, 0, 1, 1, 2, 3, 64 // n])
        vector = st.lists(st.integers(-3, 3), min_size=2, max_size=2)
        return st.tuples(
            st.lists(weight, min_size=n, max_size=n).map(lambda ks: np.array(ks, np.float32) / 64),
            st.lists(vector, min_size=n, max_size=n).map(lambda rows: np.array(rows, np.float32)),
        ).filter(lambda head: head[0].sum() <= 1)

    return st.integers(2, 12).flatmap(build)


@settings(max_examples=300, deadline=None)
@given(small_heads())
def test_ties_count_as_in_exact_arithmetic(head: tuple[np.ndarray, np.ndarray]) -> None:
    weights, values = head
    assert disagreement(selection_profile(weights, values), oracle.exact_counts(weights, values)) == 0


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 40), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 10.0, 40.0, 200.0])
)
def test_identities_and_oracle_under_underflow(n: int, d: int, seed: int, spread: float) -> None:
    weights, values = random_head(n, d, seed, spread)
    profile, size = selection_profile(weights, values), np.arange(1, n)
    assert disagreement(profile, oracle.profile(weights, values)) == 0
    assert (profile.k_in >= 0).all()
    assert (profile.k_in <= size).all()
    assert (profile.k_out >= 0).all()
    assert (profile.k_out <= n - size).all()
    assert profile.k_in[0] == 1


@pytest.mark.parametrize("n", [8, 33])
def test_the_double_sum_bounds_both_counts(n: int) -> None:
    """K_out ≤ W and N − K_in ≤ W (eq. 22 and 24)."""
    weights, values = random_head(n, 4, seed=n)
    profile, y = selection_profile(weights, values), weights[:, None].astype(float) * values
    for size in range(1, n):
        inside = oracle.selected(weights, size)
        outside = [j for j in range(n) if j not in inside]
        distance = ((y[inside].sum(0) - y) ** 2).sum(1)
        pairs = sum(distance[j] <= distance[i] for i in inside for j in outside)
        assert profile.k_out[size - 1] <= pairs
        assert size - profile.k_in[size - 1] <= pairs


def test_underflowed_weights_are_true_ties() -> None:
    weights = np.zeros(9, np.float32)
    weights[[0, 3]] = 0.75, 0.25
    values = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    expected = oracle.exact_counts(weights, values)
    assert_matches(selection_profile(weights, values), oracle.profile(weights, values) | expected, 3)


@pytest.mark.parametrize("seed", range(20))
def test_keys_one_rounding_apart_are_told_apart(seed: int) -> None:
    """Equal weights and values that differ in the last bit of one component: ‖y‖² cannot tell them apart in float64."""
    rng = np.random.default_rng(seed)
    values = np.tile(rng.standard_normal(64).astype(np.float32), (6, 1))
    for key in range(1, 6):
        component = rng.integers(64)
        values[key, component] = np.nextafter(values[key, component], np.float32(9), dtype=np.float32)
    weights = np.full(6, 1 / 8, np.float32)
    profile = selection_profile(weights, values)
    assert disagreement(profile, oracle.exact_counts(weights, values)) == 0
    assert profile.k_in[0] == 1


def test_one_key_with_all_weight() -> None:
    weights, values = np.array([0.0, 1.0, 0.0], np.float32), np.eye(3, dtype=np.float32)
    profile = selection_profile(weights, values)
    assert profile.k_in.tolist() == [1, 2]  # at N = 2 the selected zero is as far as the one left out
    np.testing.assert_array_equal(profile.norm_s, 1)


def test_values_of_norm_zero_have_no_cosine() -> None:
    weights, values = np.full(4, 0.25, np.float32), np.zeros((4, 2), np.float32)
    profile = selection_profile(weights, values)
    assert np.isnan(profile.cos_sink).all()
    assert profile.k_out.tolist() == [3, 2, 1]


def test_heads_of_a_group_share_values() -> None:
    rng = np.random.default_rng(5)
    weights, values = rng.dirichlet(np.ones(20), size=(3, 2)), rng.standard_normal((3, 1, 20, 4))
    together = selection_profile(weights, values)
    assert together.k_in.shape == (3, 2, 19)
    for kv_head, head in np.ndindex(3, 2):
        alone = selection_profile(weights[kv_head, head], values[kv_head, 0])
        for name in PROFILE:
            np.testing.assert_array_equal(getattr(together, name)[kv_head, head], getattr(alone, name))


@pytest.mark.parametrize("exponent", [-900, -140, -60, 10, 66, 127, 900])
def test_counts_do_not_depend_on_the_scale_of_values(exponent: int) -> None:
    """Not even where squares of float32, or of float64, would overflow or vanish."""
    weights, values = random_head(64, 8, seed=8)
    profile = selection_profile(weights, values)
    scaled = selection_profile(weights, np.ldexp(values.astype(np.float64), exponent))
    assert disagreement(scaled, oracle.profile(weights, values)) == 0
    for name in PROFILE[2:]:
        expected = getattr(profile, name)
        factor = 0 if name.startswith("cos") else exponent
        np.testing.assert_array_equal(getattr(scaled, name), np.ldexp(expected, factor), err_msg=name)


@pytest.mark.parametrize(
    ("weights", "values", "message"),
    [
        (np.ones((1,)), np.ones((1, 2)), "n ≥ 2"),
        (np.full(3, 0.3), np.ones((4, 2)), r"values must have the shape \(…, 3, d\)"),
        (np.full(3, 0.3), np.ones(3), "values must have the shape"),
        (np.array([0.5, -0.1]), np.ones((2, 2)), "not negative"),
        (np.array([0.5, np.nan]), np.ones((2, 2)), "no NaN"),
        (np.array([0.9, 0.9]), np.ones((2, 2)), "sum at most 1"),
        (np.array([1, 0]), np.ones((2, 2)), "weights must be floating-point"),
        (np.full(2, 0.5), np.ones((2, 2), int), "values must be floating-point"),
        (np.full(2, 0.5), np.array([[np.inf], [1]]), "values of shape .* must be finite"),
    ],
)
def test_bad_input_is_named(weights: np.ndarray, values: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selection_profile(weights, values)
