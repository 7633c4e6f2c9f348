"""AUC, measures and nulls on a CUDA device where there is one, else in Triton's interpreter, against those of the CPU.

Also that the kernels compile for Hopper GPUs on machines without any GPU.
"""

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

pytest.importorskip("triton")

from geometry.grids import log_grid  # noqa: E402
from geometry.separation import cuda as cuda_comparisons  # noqa: E402
from geometry.separation import cuda_kernels as cuda_comparison_kernels  # noqa: E402
from geometry.separation.chance import MEASURES, NULLS, separability, separation  # noqa: E402
from tests.geometry import separation_oracle  # noqa: E402
from tests.geometry.draws import HEADS, grouped, random_head, repeated_head  # noqa: E402
from tests.geometry.triton_launches import Recorder, compiled_for_hopper  # noqa: E402

Heads = list[tuple[np.ndarray, np.ndarray]]
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="there is no CUDA device")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of keys that are smaller than most heads of these tests."""
    monkeypatch.setattr(cuda_comparisons, "ROW_BLOCK", 8)


def tensors(heads: Heads) -> tuple[torch.Tensor, torch.Tensor]:
    """Some heads of one size on the device."""
    weights, values = (torch.from_numpy(np.stack(arrays)).to(DEVICE) for arrays in zip(*heads, strict=True))
    return weights, values


def auc(heads: Heads, sizes: Sequence[int]) -> np.ndarray:
    return cuda_comparisons.separation_of_heads(*tensors(heads), np.array(sizes))


@pytest.mark.one_case
@pytest.mark.parametrize(("n", "d", "sizes"), [(2, 8, [1]), (3, 1, [1, 2]), (8, 3, [1, 5]), (21, 4, [1, 6, 13, 20])])
def test_auc_equals_the_definition(n: int, d: int, sizes: list[int]) -> None:
    heads = [draw(n, d, n + d) for draw in HEADS.values()]
    expected = [separation_oracle.observed(*head, sizes)[-1] for head in heads]
    np.testing.assert_array_equal(auc(heads, sizes), expected)


@pytest.mark.one_case
@pytest.mark.parametrize("sink", [True, False])
def test_measures_and_nulls_are_those_of_the_cpu(sink: bool) -> None:
    heads = [HEADS[kind](9, 4, 3) for kind in ("random", "repeated", "zeroed", "underflowed")]
    words, sizes = np.arange(8).reshape(4, 2), np.array([1, 3, 8])
    weights, values = (np.stack(arrays) for arrays in zip(*heads, strict=True))
    expected = separability(weights, values, sizes, draws=2, seed=words, sink=sink)
    found = cuda_comparisons.separability_of_heads(*tensors(heads), words, sizes, draws=2, sink=sink)
    assert found.shape == (1 + len(NULLS), 4, len(MEASURES), 3)
    for given, name in zip(found, ("observed", *NULLS), strict=True):
        np.testing.assert_allclose(given, getattr(expected, name), rtol=0, atol=1e-15, err_msg=name)


def test_without_draws_there_are_no_nulls() -> None:
    found = cuda_comparisons.separability_of_heads(
        *tensors([random_head(5, 2, 0)]), np.zeros((1, 1), int), np.array([2]), draws=0, sink=True
    )
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1:]).all()


def exact_heads(n: int, count: int) -> Heads:
    """Weights in 64ths, many of them equal or 0, and small whole values, many repeated: every sum is exact."""
    rng = np.random.default_rng(0)
    weights = rng.choice([0, 0, 1, 1, 2, 3, 64 // n], size=(count, n))
    weights[:, rng.integers(n)] += 1
    return [(w.astype(np.float32) / 64, rng.integers(-2, 3, (n, 2)).astype(np.float32)) for w in weights]


class TestTies:
    """Equal keys, and keys equally far, are ties; rows with such pairs are settled on the host."""

    def test_count_as_in_exact_arithmetic(self) -> None:
        heads, sizes = exact_heads(9, 4), np.array([1, 2, 5, 8])
        found = cuda_comparisons.separability_of_heads(
            *tensors(heads), np.zeros((4, 1), int), sizes, draws=0, sink=True
        )
        np.testing.assert_array_equal(found[0], [separation_oracle.observed(*head, sizes) for head in heads])

    def test_keys_of_length_0_need_no_second_look(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flagged = spy(monkeypatch)
        weights, values = random_head(12, 3, 1)
        weights[5:] = 0
        expected = separation_oracle.observed(weights, values, [2, 6, 9])[-1]
        np.testing.assert_array_equal(auc([(weights, values)], [2, 6, 9])[0], expected)
        assert flagged == [0]

    @pytest.mark.parametrize(
        ("weights", "values"),
        [
            ([0.5, 0.25, 0.125, 0], [[0, 0], [2, 0], [8, 0], [3, 3]]),
            ([0.5, 0.25, 0.125, 0.125], [[1, 0], [-1, 0], [0, 0], [0, 0]]),
        ],
    )
    def test_a_key_as_far_as_y_0_is_settled(
        self, weights: list[float], values: list[list[float]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At N = 2 one key, left out or selected, has ‖y‖² = 2⟨s, y⟩, and keys of y = 0 are on the other side."""
        flagged, head = spy(monkeypatch), (np.array(weights), np.array(values, np.float64))
        expected = separation_oracle.observed(*head, [2])[-1]
        np.testing.assert_array_equal(auc([head], [2])[0], expected)
        assert flagged == [1]

    @pytest.mark.slow
    def test_without_a_second_look_they_are_miscounted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda_comparisons, "_settle", lambda *_: None)
        heads, sizes = [repeated_head(14, 4, seed) for seed in range(4)], list(range(1, 14))
        expected = np.array([separation_oracle.observed(*head, sizes)[-1] for head in heads])
        assert np.mean(auc(heads, sizes) != expected) > 0.05


def spy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are settled on the host, call by call."""
    flagged, settle = [], cuda_comparisons._settle

    def called(*args: Any) -> None:
        flagged.append(int(args[5].sum()))
        settle(*args)

    monkeypatch.setattr(cuda_comparisons, "_settle", called)
    return flagged


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("tile", "extent"), [(2**28, (3, 4)), (2 * 96 * 9 * 4, (2, 4)), (96 * 9 * 2, (1, 2)), (1, (1, 1))]
)
def test_tiles_of_some_rows_of_some_heads(tile: int, extent: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    heads, sizes = [HEADS[kind](9, 4, 3) for kind in ("random", "aligned", "repeated")], [1, 2, 5, 8]
    monkeypatch.setattr(cuda_comparisons, "TILE_BYTES", tile)
    assert cuda_comparisons._choose_extent(3, 9, 4, 4) == extent
    np.testing.assert_array_equal(auc(heads, sizes), [separation(*head, sizes) for head in heads])


def test_the_public_functions_go_where_the_device_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arrays from both paths, in NumPy, for heads that share value states; bad input is refused."""
    if DEVICE == "cpu":
        monkeypatch.setattr("geometry.separation.chance.convert_tensor", lambda given, _place: torch.as_tensor(given))
    weights, values = grouped(random_head, 2, 2, 9, 3)
    here, there = (separability(weights, values, [2, 7], draws=1, seed=4, device=device) for device in ("cpu", "cuda"))
    for name in ("observed", *NULLS):
        assert isinstance(getattr(there, name), np.ndarray)
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=0, atol=1e-15)
    found = separation(weights, values, [2, 7], device="cuda")
    np.testing.assert_array_equal(found, separation(weights, values, [2, 7]))
    for call in (separation, partial(separability, draws=1, seed=0)):
        with pytest.raises(ValueError, match=r"values of shape .* must be finite"):
            call(weights, values * np.inf, device="cuda")
        with pytest.raises(ValueError, match="n must be ascending whole numbers from 1 to 8"):
            call(weights, values, [9], device="cuda")


@pytest.mark.parametrize("exponent", [-1000, 1000])
def test_values_of_extreme_size(exponent: int) -> None:
    weights, values = (array.astype(np.float64) for array in random_head(8, 3, 8))
    heads = [(weights, values), (weights, np.ldexp(values, exponent))]
    plain, scaled = auc(heads, [1, 3, 7])
    np.testing.assert_array_equal(scaled, plain)


def test_memory_is_bounded_whatever_the_number_of_heads() -> None:
    assert cuda_comparisons.estimate_device_bytes(1000, 1024, 128, 48) < 2**30
    assert cuda_comparisons.estimate_device_bytes(1, 2**16, 128, 48) < 2**30


# Compilation for a GPU that is not there


@pytest.mark.slow
def test_kernels_compile_for_hopper_in_float64(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda_comparisons, "ROW_BLOCK", 256)
    recorders = []
    for n, d, sizes in ((16, 16, [3]), (3, 2, [1, 2])):
        recorders.append(Recorder(cuda_comparison_kernels))
        monkeypatch.setattr(cuda_comparisons, "_import_kernels", lambda: recorders[-1])
        auc([random_head(n, d, 0)], sizes)
    kernels = [launch for recorder in recorders for launch in recorder.launches.items()]
    assert sorted(name for name, _ in kernels) == ["compare_rows"] * 2 + ["lower_ends"] * 2
    for name, code, shared in compiled_for_hopper(cuda_comparison_kernels, kernels, tmp_path):
        assert shared < 2**17, name
        assert not re.search(r"arith\..*f32", code), name  # nor a constant


# What needs a GPU


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_heads_equal_those_of_the_cpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_comparisons, "ROW_BLOCK", 256)
    drawn = [draw(1024, 128, 5) for draw in HEADS.values()]
    weights, values = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
    values = values.to(dtype)
    here, there = (separability(weights, values, draws=2, seed=1, device=device) for device in ("cpu", "cuda"))
    for name in ("observed", *NULLS):
        given, expected = getattr(there, name), getattr(here, name)
        assert np.mean(given != expected) < 0.01  # float64 keys may differ by rounding of s
        np.testing.assert_allclose(given, expected, rtol=0, atol=0.01, err_msg=name)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("heads", "n", "d"), [(32, 1024, 128), (2, 8192, 64), (40, 77, 256), (3, 2, 1)])
def test_memory_on_the_device(heads: int, n: int, d: int) -> None:
    weights = torch.randn(heads, n, device=DEVICE).mul(3).softmax(-1)
    values = torch.randn(heads, n, d, device=DEVICE, dtype=torch.bfloat16)
    run = partial(separability, weights, values, draws=1, seed=0)
    run()  # the library of matrix products takes its share
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    bound = cuda_comparisons.estimate_device_bytes(heads, n, d, len(log_grid(n)))
    assert torch.cuda.max_memory_allocated() - before <= bound
