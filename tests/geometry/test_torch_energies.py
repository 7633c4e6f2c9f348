"""AUC, measures and nulls with energies from PyTorch: on a CUDA device where there is one, else on the CPU."""

import numpy as np
import pytest
import torch

from geometry.separation import comparisons
from geometry.separation.chance import NULLS, separability, separation
from tests.geometry import separation_oracle
from tests.geometry.draws import HEADS, grouped, random_head, repeated_head

HERE = torch.cuda.is_available()


@pytest.fixture(autouse=True)
def _somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CUDA device, tensors are on the CPU."""
    if not HERE:
        on_device = comparisons.sort_energies_on_device
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(
            comparisons, "sort_energies_on_device", lambda keys, *of: on_device(keys._replace(place="cpu"), *of)
        )


@pytest.mark.one_case
@pytest.mark.parametrize(("n", "d", "sizes"), [(21, 4, [1, 6, 13, 20]), (2, 8, [1]), (3, 1, [1, 2])])
def test_auc_equals_the_definition(n: int, d: int, sizes: list[int]) -> None:
    for kind, draw in HEADS.items():
        expected = separation_oracle.observed(*draw(n, d, n + d), sizes)[-1]
        np.testing.assert_array_equal(separation(*draw(n, d, n + d), sizes, device="cuda"), expected, err_msg=kind)


@pytest.mark.one_case
@pytest.mark.parametrize("sink", [True, False])
def test_measures_and_nulls_are_those_of_the_cpu(sink: bool) -> None:
    """The same numbers from both paths, for heads that share value states."""
    for draw in (random_head, HEADS["underflowed"], HEADS["repeated"]):
        weights, values = grouped(draw, 2, 2, 30, 3)
        here, there = (
            separability(weights, values, [2, 7], draws=2, seed=4, sink=sink, device=device)
            for device in ("cpu", "cuda")
        )
        for name in ("observed", *NULLS):
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


def test_without_the_error_bound_ties_are_miscounted(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, sizes = [repeated_head(14, 4, seed) for seed in range(4)], list(range(1, 14))
    expected = [separation_oracle.observed(*head, sizes)[-1] for head in heads]
    np.testing.assert_array_equal([separation(*head, sizes, device="cuda") for head in heads], expected)
    monkeypatch.setattr(comparisons, "error_factors", lambda _d: (-1.0, 0.0))
    found = [separation(*head, sizes, device="cuda") for head in heads]
    assert np.mean(np.array(found) != expected) > 0.05


@pytest.mark.gpu
@pytest.mark.skipif(not HERE, reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_heads_equal_those_of_the_cpu(dtype: torch.dtype) -> None:
    drawn = [draw(1024, 128, 5) for draw in HEADS.values()]
    weights, values = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
    values = values.to(dtype)
    here, there = (separability(weights, values, draws=2, seed=1, device=device) for device in ("cpu", "cuda"))
    for name in ("observed", *NULLS):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
