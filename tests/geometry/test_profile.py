"""selection_profile against the definitions: oracle, ties, awkward heads, bad input, and controls that must fail."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given

from geometry import SelectionCounts, SelectionProfile, selection_counts, selection_profile
from geometry.quantities import BY_KAPPA, list_declared, list_derived
from geometry.selection import host, scan
from geometry.separation.chance import separability
from reports.intuition import figures as example
from tests.geometry import oracle
from tests.geometry.comparison import COUNTS, LENGTHS, departures
from tests.geometry.draws import HEADS, grouped, near_head, random_head, small_heads
from tests.geometry.test_metrics import DEFINITIONS

EVERYTHING = tuple(field.name for field in dataclasses.fields(SelectionProfile))


def disagreement(profile: SelectionCounts, expected: dict[str, np.ndarray]) -> float:
    """Share of (count, N) in which two profiles differ."""
    return float(np.mean([getattr(profile, name) != expected[name] for name in COUNTS]))


def draw_unequal(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Value states of very different lengths."""
    weights, values = random_head(n, d, seed)
    return weights, values * np.exp2(np.random.default_rng(0).uniform(-30, 30, n)).astype(np.float32)[:, None]


def draw_lesser(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of which a learned sink has left next to nothing: squares of y are beyond float32."""
    weights, values = random_head(n, d, seed)
    return weights.astype(float) * 1e-100, values


KINDS = HEADS | {"unequal": draw_unequal, "lesser": draw_lesser}


@pytest.mark.one_case
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "sink"), [(3, 1, False), (17, 8, True), (96, 16, False)])
def test_equals_the_definitions(kind: str, n: int, d: int, sink: bool) -> None:
    weights, values = KINDS[kind](n, d, n + d)
    asked = {"kappas": (0.05, 0.5, 5, 500), "sink": sink}
    assert departures(selection_profile(weights, values, **asked), oracle.profile(weights, values, **asked)) == {}


def test_every_array_is_compared() -> None:
    weights, values = random_head(9, 2, seed=0)
    assert set(oracle.profile(weights, values)) == set(EVERYTHING)
    assert set(oracle.PER_KAPPA) == set(list_declared(SelectionProfile, BY_KAPPA))
    assert set(oracle.PER_HEAD) == {
        name for name, made in list_declared(SelectionProfile).items() if "n" not in made.axes
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float64, torch.bfloat16, torch.float64])
def test_arrays_and_tensors_of_every_float_type_are_taken_at_their_own_value(dtype: Any) -> None:
    drawn = random_head(80, 8, seed=1)
    if isinstance(dtype, torch.dtype):
        weights, values = (torch.from_numpy(array).to(dtype) for array in drawn)
    else:
        weights, values = (array.astype(dtype) for array in drawn)
    expected = oracle.profile(*(torch.as_tensor(array).double().numpy() for array in (weights, values)))
    assert departures(selection_profile(weights, values), expected) == {}


def test_a_softmax_in_bfloat16_is_taken() -> None:
    """Rounded, a good part of its rows sums to more than 1.001."""
    logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    weights = logits.softmax(-1).bfloat16()
    assert (weights.double().sum(-1) > 1.001).sum() > 20
    np.testing.assert_allclose(selection_profile(weights, torch.ones(3, 1)).weight_sum, weights.double().sum(-1))


class TestControls:
    """What the comparison above would miss if it could not fail: each mutation must be noticed."""

    @staticmethod
    def disagreement_of_near_keys() -> float:
        """Share of wrong counts where every key has a neighbour of equal weight and nearly equal value state."""
        wrong = []
        for seed in range(60):
            weights, values = (array.repeat(2, axis=0) for array in random_head(40, 8, seed))
            values = values * (1 + 1e-6 * np.random.default_rng(seed).standard_normal((80, 1)))
            head = weights / 2, values.astype(np.float32)
            wrong.append(disagreement(selection_counts(*head), oracle.sure_counts(*head)))
        return float(np.mean(wrong))

    def test_without_the_error_bound_float32_miscounts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.disagreement_of_near_keys() == 0
        for part in ("SLOPE", "SLOPE_OF_SUMS", "BEND", "TRIFLE"):
            monkeypatch.setattr(scan, part, 0.0)
        assert self.disagreement_of_near_keys() > 0

    def test_another_order_of_ties_is_noticed(self) -> None:
        weights = np.array([0.25, 0.25, 0.25, 0.25])
        values = np.random.default_rng(0).standard_normal((4, 2))
        np.testing.assert_allclose(selection_profile(weights, values).norm_s[0], np.linalg.norm(values[0]) / 4)
        assert disagreement(selection_profile(weights, values[::-1]), oracle.profile(weights, values)) > 0


@given(small_heads())
def test_ties_count_as_in_exact_arithmetic(head: tuple[np.ndarray, np.ndarray]) -> None:
    weights, values = head
    assert disagreement(selection_profile(weights, values), oracle.exact_counts(weights, values)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_keys_one_rounding_apart_are_told_apart(seed: int) -> None:
    """Equal weights and values that differ in the last bit of one component: ‖y‖² cannot tell them apart in float64."""
    weights, values = near_head(6, 64, seed, np.float32)
    profile = selection_profile(weights, values)
    assert disagreement(profile, oracle.exact_counts(weights, values)) == 0
    assert profile.k_in[0] == 1


def test_leading_axes_broadcast_both_ways() -> None:
    weights, values = grouped(random_head, 2, 3, 12, 4)
    one = selection_profile(weights[0, 0], values[:, 0])
    assert one.k_in.shape == (2, 11)
    listed = selection_profile(weights[0, 0].tolist(), values[:, 0].astype(float).tolist())
    assert disagreement(listed, vars(one)) == 0
    assert selection_profile(weights[:0, 0], values[:0, 0]).k_in.shape == (0, 11)


@pytest.mark.parametrize("exponent", [-900, -140, 127, 900])
def test_counts_do_not_depend_on_the_scale_of_values(exponent: int) -> None:
    """Not even where squares of float32, or of float64, would overflow or vanish."""
    weights, values = random_head(64, 8, seed=8)
    profile = selection_profile(weights, values)
    scaled = selection_profile(weights, np.ldexp(values.astype(np.float64), exponent))
    assert disagreement(scaled, oracle.profile(weights, values)) == 0
    for name in EVERYTHING:
        expected = np.ldexp(getattr(profile, name), exponent) if name in LENGTHS else getattr(profile, name)
        exact = name in COUNTS  # kernels of float32 and float64, compiled apart, may add up the others in another order
        atol = 0 if exact or name in LENGTHS else 1e-12
        np.testing.assert_allclose(getattr(scaled, name), expected, rtol=0 if exact else 1e-12, atol=atol, err_msg=name)


@pytest.mark.parametrize("exponent", [-300, 300])
def test_raw_bounds_of_huge_and_tiny_values_are_their_limits(exponent: int) -> None:
    """ξ grows without bound or vanishes, so p is 0 wherever it is not 1/2."""
    weights, values = random_head(40, 8, seed=3)
    halves = oracle.exact_halves(weights, values)[1:]
    profile = selection_profile(weights, np.ldexp(values.astype(np.float64), exponent), scale="raw")
    size = np.arange(2, 40)
    np.testing.assert_allclose(profile.recall_upper[0, 1:], 1 - halves / 2 / size, atol=1e-6)
    np.testing.assert_allclose(profile.precision_upper[0, 1:], 1 - (halves > 0) / 2 / (size + 1), atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeError, match="no CUDA device that PyTorch can use for device='cuda'"):
        selection_profile(*random_head(9, 2, 0), device="cuda")


@given(small_heads())
def test_what_follows_from_counts_equals_the_definitions(head: tuple[np.ndarray, np.ndarray]) -> None:
    counts, exact, n = selection_counts(*head), oracle.exact_counts(*head), len(head[0])
    for size, inside, outside in zip(range(1, n), exact["k_in"], exact["k_out"], strict=True):
        expected = {"n": size, "n_keys": n}
        expected |= {name: float(define(size, inside, outside, n)) for name, define in DEFINITIONS.items()}
        assert expected.keys() == list_derived(SelectionCounts).keys()
        for name, right in expected.items():
            found = np.broadcast_to(getattr(counts, name), n - 1)[size - 1]
            assert found == pytest.approx(right, rel=0, abs=1e-15), name


def test_unknown_counts_stay_unknown() -> None:
    """As heads with fewer keys are stored: −1 beyond their own N."""
    long, short = (selection_counts(*random_head(n, 4, seed=n)) for n in (9, 6))
    stacked = SelectionCounts(
        *(
            np.stack([getattr(long, name), np.pad(getattr(short, name), (0, 3), constant_values=made.fill)])
            for name, made in list_declared(SelectionCounts).items()
        )
    )
    assert stacked.n_keys.tolist() == [9, 6]
    for name in list_derived(SelectionCounts).keys() - {"n", "n_keys"}:
        array = getattr(stacked, name)
        np.testing.assert_array_equal(array[0], getattr(long, name))
        np.testing.assert_array_equal(array[1, :5], getattr(short, name))
        assert np.isnan(array[1, 5:]).all()
    assert stacked.to_arrow().num_rows == 8 + 5
    assert "6–9 keys" in repr(stacked)


class TestShown:
    @staticmethod
    def table(**settings: Any) -> tuple[SelectionProfile, pa.Table]:
        profile = selection_profile(*grouped(random_head, 2, 3, 12, 4), **settings)
        return profile, profile.to_arrow(("kv_head", "head"))

    def test_a_table_has_every_number_once_per_head_and_n(self) -> None:
        profile, table = self.table(kappas=(0.5, 5.0), sink=False)
        names = ["kv_head", "head", *list_derived(SelectionProfile), *list_declared(SelectionProfile)]
        assert table.column_names == names
        rows = {(row["kv_head"], row["head"], row["n"]): row for row in table.to_pylist()}
        assert len(rows) == table.num_rows == 2 * 3 * 11
        for (kv_head, head, n), row in rows.items():
            for name in names[2:]:
                axes = (list_derived(SelectionProfile) | list_declared(SelectionProfile))[name].axes
                array = getattr(profile, name)
                at = array if name == "n" else array[kv_head, head]
                wanted = at[..., n - 1] if "n" in axes else at
                given = row[name] if "kappa" in axes else [row[name]]
                wanted = [None if np.isnan(number) else number for number in np.atleast_1d(wanted)]
                assert given == wanted, name

    def test_without_kappa_heads_or_names_of_axes(self) -> None:
        profile, table = self.table(kappas=())
        assert profile.precision_upper.shape == profile.recall_upper.shape == (2, 3, 0, 11)
        assert table.column("recall_upper").to_pylist() == [[]] * table.num_rows
        weights, values = grouped(random_head, 2, 3, 12, 4)
        assert selection_profile(weights[:0], values[:0]).to_arrow().num_rows == 0
        assert selection_counts(weights[0, 0], values[0, 0]).to_arrow().column_names[:2] == ["n", "n_keys"]
        counts = selection_counts(weights, values)
        assert counts.to_arrow().column_names[:3] == ["axis_0", "axis_1", "n"]
        with pytest.raises(ValueError, match=r"axes must name the 2 leading axes of shape \(2, 3\), got \['head'\]"):
            counts.to_arrow(["head"])


def test_inputs_are_left_as_they_are() -> None:
    weights, values = grouped(random_head, 2, 2, 30, 4)
    before = weights.copy(), values.copy()
    selection_profile(weights, values)
    separability(weights, values, draws=1, seed=0)
    compiled = [*host.fill_profile.signatures]  # type: ignore[attr-defined]
    for array in (weights, values):
        array.flags.writeable = False
    separability(weights, values, draws=1, seed=0)
    profile = selection_profile(weights, values)
    assert host.fill_profile.signatures == compiled, "compiled anew for arrays that are read-only"  # type: ignore[attr-defined]
    fortran = selection_profile(np.asfortranarray(weights), np.asfortranarray(values))
    for name in EVERYTHING:
        np.testing.assert_array_equal(getattr(profile, name), getattr(fortran, name), err_msg=name)
    np.testing.assert_array_equal(weights, before[0])
    np.testing.assert_array_equal(values, before[1])


def test_precision_and_recall_of_figure_1_are_those_of_the_paper() -> None:
    found, n = example.build_key_table().to_pydict(), example.SELECTED
    weights, values = np.array(found["weight"]), np.stack([found["v_x"], found["v_y"]], axis=1)
    exact, counts = oracle.row(weights, values, n), selection_counts(weights, values)
    assert (exact["k_in"], exact["k_out"]) == (counts.k_in[n - 1], counts.k_out[n - 1]) == (2, 5)
    assert (counts.precision[n - 1], counts.recall[n - 1]) == (3 / 8, 2 / 3)
    order = sorted(range(len(values)), key=lambda i: -found["weight"][i])
    assert max(found["distance"][i] for i in order[:n]) == pytest.approx(exact["r_max"])
    assert min(found["distance"][i] for i in order[n:]) == pytest.approx(exact["r_min"])
