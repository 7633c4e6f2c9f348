"""profile_of_heads against the definitions: on a CUDA device where there is one, else in Triton's interpreter.

Also that the kernels compile for Hopper GPUs, in float64, on machines without any GPU.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

triton = pytest.importorskip("triton")

import geometry  # noqa: E402
from geometry import SelectionProfile, selection_profile  # noqa: E402
from geometry.quantities import BY_N, list_declared  # noqa: E402
from geometry.selection import cuda, cuda_kernels  # noqa: E402
from tests.geometry import oracle  # noqa: E402
from tests.geometry.draws import HEADS, aligned_head, random_head  # noqa: E402
from tests.geometry.triton_launches import Recorder, compiled_for_hopper  # noqa: E402

Heads = list[tuple[np.ndarray, np.ndarray]]
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="there is no CUDA device")


@pytest.fixture(autouse=True)
def _interpreter() -> None:
    early = DEVICE == "cpu" and isinstance(triton.language.sum, triton.JITFunction)
    assert not early, "Triton was imported before TRITON_INTERPRET=1 was set: conftest.py must set it"


def profile(
    heads: Heads,
    *,
    kappas: tuple[float, ...] = (0.5,),
    scale: str = "unit",
    sink: bool = True,
    dtypes: tuple[torch.dtype, torch.dtype] | None = None,
) -> list[dict[str, np.ndarray]]:
    """The profile of each of some heads of one size, computed in one call."""
    weights, values = (torch.from_numpy(np.stack(arrays)).to(DEVICE) for arrays in zip(*heads, strict=True))
    if dtypes is not None:
        weights, values = weights.to(dtypes[0]), values.to(dtypes[1])
    found = cuda.profile_of_heads(weights, values, kappas=kappas, scale=scale, sink=sink)
    return [{name: array[head] for name, array in found.items()} for head in range(len(heads))]


def departures(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], *, upper: float = 1e-9
) -> dict[str, list[int]]:
    """Where the arrays of one head differ by more than float64 rounding, or float32's in ρ_out, by name."""
    assert set(found) == set(expected)
    wrong = {}
    for name, right in expected.items():
        given = found[name]
        assert given.shape == right.shape
        assert given.dtype == (np.int32 if name in {"k_in", "k_out"} else np.float64)
        of = expected["norm_s"] if name == "norm_s_without_last" else right  # it is what is left of s
        size = 1.0 if name in UNITLESS else np.abs(of[np.isfinite(of)]).max(initial=0)
        near = {"k_in": 0.0, "k_out": 0.0, "rho_out": 1e-6, "precision_upper": upper, "recall_upper": upper}
        same = np.isclose(given, right, rtol=0, atol=near.get(name, 1e-12 * size), equal_nan=True)
        if not same.all():
            wrong[name] = np.argwhere(~same).tolist()
    return wrong


UNITLESS = ("k_in", "k_out", "cos_sink", "cos_last", "rho_out", "precision_upper", "recall_upper", "weight_sum")


def assert_right(heads: Heads, **settings: Any) -> None:
    for (weights, values), found in zip(heads, profile(heads, **settings), strict=True):
        assert departures(found, oracle.profile(weights, values, **settings)) == {}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of keys that are smaller than the heads of these tests."""
    for name, size in {"ROW_BLOCK": 16, "KEY_ROWS": 4, "SUM_ROWS": 8, "SUM_COMPONENTS": 4}.items():
        monkeypatch.setattr(cuda, name, size)
    monkeypatch.setattr(cuda, "COSINE_SIDE", 16)
    monkeypatch.setattr(cuda, "COSINE_CHUNK", 16)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("n", "d", "settings"),
    [
        (2, 8, {}),
        pytest.param(10, 5, {"kappas": (0.5, 20.0)}, marks=pytest.mark.long),
        (6, 4, {"kappas": (0.5, 30.0), "scale": "raw", "sink": False}),
    ],
)
def test_equals_the_definitions(n: int, d: int, settings: dict[str, Any]) -> None:
    assert_right([draw(n, d, n + d) for draw in HEADS.values()], **settings)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_heads_longer_than_a_block() -> None:
    assert_right([random_head(35, 20, 1)])


def test_no_kappa() -> None:
    assert_right([random_head(6, 3, 1)], kappas=())


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("weights", "values"),
    [
        (torch.float16, torch.bfloat16),
        (torch.bfloat16, torch.float16),
        (torch.float64, torch.float32),
        (torch.float32, torch.float64),
    ],
)
def test_every_float_type_is_taken_at_its_own_value(weights: torch.dtype, values: torch.dtype) -> None:
    drawn = random_head(6, 4, 6)
    head = [torch.from_numpy(array).to(dtype) for array, dtype in zip(drawn, (weights, values), strict=True)]
    exact = tuple(array.double().numpy() for array in head)
    (found,) = profile([exact], dtypes=(weights, values))
    assert departures(found, oracle.profile(*exact)) == {}


@pytest.mark.slow
def test_values_that_heads_share_are_read_through_any_strides() -> None:
    weights = torch.tensor(np.stack([random_head(8, 3, seed)[0] for seed in range(3)]), device=DEVICE)
    values = torch.tensor(random_head(8, 3, 9)[1], device=DEVICE)
    spread = values.T.contiguous().T.expand(3, 8, 3)
    assert spread.stride() == (0, 1, 8)
    found = cuda.profile_of_heads(weights, spread, kappas=(0.5,), scale="unit", sink=True)
    for head in range(3):
        expected = oracle.profile(weights[head].cpu().numpy(), values.cpu().numpy())
        assert departures({name: array[head] for name, array in found.items()}, expected) == {}


@pytest.mark.slow
def test_leading_axes_broadcast() -> None:
    weights = np.stack([random_head(6, 2, seed)[0] for seed in range(4)]).reshape(2, 2, 6)
    values = np.stack([random_head(6, 2, seed)[1] for seed in range(2)])[:, None]
    arrays = (torch.from_numpy(array).to(DEVICE) for array in (weights, values))
    found = SelectionProfile(**cuda.profile_of_heads(*arrays, kappas=(0.5, 1.0), scale="unit", sink=True))
    assert found.k_in.shape == (2, 2, 5)
    assert found.recall_upper.shape == (2, 2, 2, 5)
    assert found.value_scale.shape == (2, 2)
    for kv_head, head in np.ndindex(2, 2):
        expected = oracle.profile(weights[kv_head, head], values[kv_head, 0], kappas=(0.5, 1.0))
        given = {name: getattr(found, name)[kv_head, head] for name in expected}
        assert departures(given, expected) == {}


def test_the_public_function_goes_where_the_device_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arrays from both paths, in NumPy; bad input is refused before any kernel runs."""
    if DEVICE == "cpu":
        monkeypatch.setattr("geometry.selection.profile.convert_tensor", lambda given, _place: torch.as_tensor(given))
    weights, values = random_head(9, 4, 3)
    found, expected = (selection_profile(weights, values, device=device) for device in ("cuda", "cpu"))
    for name, array in vars(expected).items():
        assert isinstance(getattr(found, name), np.ndarray)
        np.testing.assert_allclose(getattr(found, name), array, rtol=1e-6, atol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match=r"values of shape .* must be finite"):
        selection_profile(weights, values * np.inf, device="cuda")
    with pytest.raises(ValueError, match=r"weights of shape .* must be rows"):
        selection_profile(-weights, values, device="cuda")


@pytest.mark.one_case
@pytest.mark.parametrize(("tile", "extent"), [(8 * 7 * 4, (1, 4)), (8 * 7 * 7 * 2, (2, 6)), (1, (1, 1))])
def test_tiles_of_some_rows_of_some_heads(tile: int, extent: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [HEADS[kind](7, 4, 3) for kind in ("random", "aligned", "repeated")]
    monkeypatch.setattr(cuda, "TILE_BYTES", tile)
    assert cuda._choose_extent(3, 7, 4) == extent
    assert_right(heads, kappas=(2000.0,))


@pytest.mark.slow
def test_values_of_extreme_size() -> None:
    """Lengths scale with the values, and nothing else does."""
    weights, values = random_head(7, 3, 8)
    exponents = (0, 1000, -1000, -1040, 2)
    scaled = [(weights.astype(np.float64), np.ldexp(values.astype(np.float64), by)) for by in exponents]
    expected, *found = profile(scaled)
    for by, one in zip(exponents[1:], found, strict=True):
        coarse = 1e-8 if by == -1040 else 1e-13  # subnormal numbers have few digits
        for name, right in expected.items():
            wanted = right if name in UNITLESS else np.ldexp(right, by)
            near = {"rtol": 1e-6 if name == "rho_out" else coarse, "atol": coarse if name in UNITLESS else 0}
            np.testing.assert_allclose(one[name], wanted, **near, err_msg=name)


@pytest.mark.parametrize("exponent", [-60, 60])
def test_raw_bounds_depend_on_the_size_of_the_values(exponent: int) -> None:
    weights, values = random_head(7, 3, 8)
    assert_right([(weights, np.ldexp(values, exponent))], kappas=(0.5, 4.0**-exponent), scale="raw")


class TestTies:
    """Equal keys are ties, however their energies are rounded."""

    @staticmethod
    def exact_heads(n: int, count: int, seed: int = 0) -> Heads:
        """Weights in 64ths, many of them equal or 0, and small whole values, many repeated: every sum is exact."""
        rng = np.random.default_rng(seed)
        weights = rng.choice([0, 0, 1, 1, 2, 3, 64 // n], size=(count, n))
        weights[:, rng.integers(n)] += 1
        return [(w.astype(np.float32) / 64, rng.integers(-2, 3, (n, 2)).astype(np.float32)) for w in weights]

    @pytest.mark.one_case
    @pytest.mark.parametrize("sink", [True, False])
    def test_count_as_in_exact_arithmetic(self, sink: bool) -> None:
        heads = self.exact_heads(6, 5)
        for head, found in zip(heads, profile(heads, kappas=(1e-300,), scale="raw", sink=sink), strict=True):
            for name, expected in oracle.exact_counts(*head).items():
                np.testing.assert_array_equal(found[name], expected)
            # p of keys that are not late vanishes with κ
            late = np.nan_to_num((1 - found["recall_upper"][0]) * 2 * np.arange(1, 6), nan=-1)
            late[found["a_max_in"] + found["a_max_out"] + found["s_in"] == 0] = 0  # there is no bound
            np.testing.assert_allclose(late, oracle.exact_halves(*head, sink=sink), atol=1e-12)

    @pytest.mark.slow
    def test_keys_one_rounding_apart_are_told_apart(self) -> None:
        heads = self.near_heads()
        for head, found in zip(heads, profile(heads), strict=True):
            for name, expected in oracle.exact_counts(*head).items():
                np.testing.assert_array_equal(found[name], expected)

    @staticmethod
    def near_heads() -> Heads:
        """Equal weights and float64 values that differ in the last bit of one component."""
        heads = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            values = np.tile(rng.standard_normal(6), (5, 1))
            for key in range(1, 5):
                component = rng.integers(6)
                values[key, component] = np.nextafter(values[key, component], 9.0)
            heads.append((np.full(5, 1 / 8), values))
        return heads

    def wrong(self) -> float:
        """Share of counts of such keys that are wrong."""
        heads = self.near_heads()
        pairs = [
            (found[name], expected)
            for head, found in zip(heads, profile(heads), strict=True)
            for name, expected in oracle.exact_counts(*head).items()
        ]
        return float(np.mean([given != expected for given, expected in pairs]))

    @pytest.mark.slow
    def test_without_the_error_bound_they_are_miscounted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("geometry.selection.cuda.error_slope", lambda *_: 0.0)
        monkeypatch.setattr(cuda, "error_bend", lambda _d: 0.0)
        assert self.wrong() > 0.05

    @pytest.mark.slow
    def test_without_differences_they_are_miscounted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda, "_recount", lambda _rows, _out: None)
        assert self.wrong() > 0.05

    @pytest.mark.slow
    def test_late_keys_are_told_from_equal_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = spy(monkeypatch, "_find_late")
        heads = self.exact_heads(6, 3, seed=3)
        profile(heads)
        assert calls

    def test_equal_energies_that_are_exact_need_no_second_look(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = spy(monkeypatch, "_recount")
        weights, values = random_head(8, 3, 1)
        weights[4:] = 0
        assert_right([(weights, values)])
        assert not calls

    @pytest.mark.one_case
    @pytest.mark.parametrize(
        ("weights", "values"),
        [
            ([0, 1, 0, 0], np.eye(4)),
            ([1, 0, 0, 0], np.eye(4)),
            ([0.25] * 4, np.ones((4, 2))),
            ([0.25] * 4, np.zeros((4, 2))),
            ([0.5, 0.25, 0.25, 0], [[0, 0], [1, 2], [1, 2], [3, 1]]),
            ([0.0, 0.0, -0.0, 0.5], [[1, 0], [2, 0], [3, 0], [0, 1]]),
        ],
    )
    @pytest.mark.parametrize("sink", [True, False])
    def test_degenerate_heads(self, weights: list[float], values: Any, sink: bool) -> None:
        assert_right([(np.array(weights, np.float32), np.array(values, np.float32))], sink=sink)


def spy(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """The arguments of all calls of a function of geometry.selection.cuda, which still does its work."""
    calls, function = [], getattr(cuda, name)

    def called(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    monkeypatch.setattr(cuda, name, called)
    return calls


class TestSearch:
    """Where p is largest neither for the largest nor for the least g left out."""

    heads = (aligned_head(10, 4, 1), random_head(10, 4, 2))
    kappas = (300.0, 1e5)

    def test_equals_the_definitions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        searches = spy(monkeypatch, "_search")
        assert_right(list(self.heads), kappas=self.kappas)
        assert sum(len(rows.head) for rows, *_ in searches) > 3

    @pytest.mark.slow
    def test_raw_bounds_of_large_values(self) -> None:
        assert_right([(weights, 1000 * values) for weights, values in self.heads], kappas=(0.5,), scale="raw")

    @pytest.mark.slow
    def test_without_it_bounds_are_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda, "_search", lambda *_: None)
        with pytest.raises(AssertionError, match="upper"):
            assert_right(list(self.heads), kappas=self.kappas)

    @pytest.mark.slow
    def test_rows_come_in_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = profile(list(self.heads), kappas=self.kappas)
        monkeypatch.setattr(cuda, "_count_rows_at_once", lambda _n, _components: 2)
        searches = spy(monkeypatch, "_search")
        for found, expected in zip(profile(list(self.heads), kappas=self.kappas), whole, strict=True):
            assert departures(found, expected) == {}
        assert max(len(rows.head) for rows, *_ in searches) == 2


def test_without_triton_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "geometry.selection.cuda_kernels")
    monkeypatch.delattr(geometry.selection, "cuda_kernels")
    with pytest.raises(RuntimeError, match="pip install triton") as refusal:
        profile([random_head(4, 2, 0)])
    assert "\n" not in str(refusal.value)


def test_memory_is_bounded_whatever_the_number_of_pairs() -> None:
    assert cuda.estimate_device_bytes(32, 1024, 128) < 2**30
    assert cuda.estimate_device_bytes(1, 2**16, 128) < 2**31  # all pairs would take 2^35
    results = 1000 * 1024 * 8 * (len(cuda_kernels.FIELDS) + 3)
    assert cuda.estimate_device_bytes(1000, 1024, 128) < 2**30 + results


# Compilation for a GPU that is not there


def launches(monkeypatch: pytest.MonkeyPatch, n: int, d: int, dtype: torch.dtype, components: int) -> Iterator[Any]:
    """Name and launch of each kernel, as Triton specialises it, for heads of so many components."""
    recorder = Recorder(cuda_kernels)
    monkeypatch.setattr(cuda, "import_kernels", lambda: recorder)
    profile([random_head(n, d, 0)], dtypes=(torch.float32, dtype))
    for name, (signature, constants, *rest) in recorder.launches.items():
        width = {"components": components} if "components" in constants and name != "cumulate" else {}
        yield name, (signature, constants | width, *rest)


@pytest.mark.slow
def test_kernels_compile_for_hopper_in_float64(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernels = [*launches(monkeypatch, 16, 16, torch.bfloat16, 128), *launches(monkeypatch, 2, 1, torch.float64, 1)]
    assert len(kernels) == 10
    for name, code, shared in compiled_for_hopper(cuda_kernels, kernels, tmp_path):
        assert shared < 2**17, name
        if name == "profile_rows":
            rounded = set(re.findall(r"arith.constant (?:dense<)?([^ >]+)>? : (?:tensor<\w+x)?f32", code))
            assert rounded <= {"5.000000e-01"}
            assert {repr(constant.value) for constant in (cuda_kernels.XI_STAR, cuda_kernels.DENSITY_0)} <= set(
                re.findall(r"arith.constant (?:dense<)?([^ >]+)>? : (?:tensor<\w+x)?f64", code)
            )


# What needs a GPU


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_heads_equal_those_of_the_cpu(dtype: torch.dtype) -> None:
    drawn = [draw(1024, 128, 5) for draw in HEADS.values()]
    weights, values = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
    values = values.to(dtype)
    here, there = (selection_profile(weights, values, kappas=(0.5, 500.0), device=device) for device in ("cpu", "cuda"))
    for name in list_declared(SelectionProfile, BY_N):
        given, expected = getattr(there, name), getattr(here, name)
        if name in {"k_in", "k_out"}:
            assert np.mean(given != expected) < 1e-4  # float64 keys may differ by rounding of s
        else:
            size = 1.0 if name in UNITLESS else np.nanmax(np.abs(expected))
            np.testing.assert_allclose(given, expected, rtol=0, atol=2e-6 * size, err_msg=name)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("heads", "n", "d"), [(32, 1024, 128), (2, 8192, 64), (40, 77, 256), (3, 2, 1)])
def test_memory_on_the_device(heads: int, n: int, d: int) -> None:
    weights = torch.randn(heads, n, device=DEVICE).mul(3).softmax(-1)
    values = torch.randn(heads, n, d, device=DEVICE, dtype=torch.bfloat16)
    run = partial(cuda.profile_of_heads, weights, values, kappas=(0.5, 1e5), scale="unit", sink=True)
    run()  # the library of matrix products takes its share
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    assert torch.cuda.max_memory_allocated() - before <= cuda.estimate_device_bytes(heads, n, d, kappas=2)
