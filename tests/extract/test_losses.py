"""Cross entropy and divergence against their definitions in float64."""

import pytest
import torch
from torch import Tensor

from extract import interventions as module
from extract.interventions import Losses, compute_log_probabilities
from tests.extract.memory import Held


def compare(logits: Tensor, plain: Tensor, ids: Tensor) -> Losses:
    return module.compare_losses(logits, compute_log_probabilities(plain), ids)


KEYS, WORDS, ROWS = 50, 90, 4
ROUNDED = {"rel": WORDS * 2.0**-24, "abs": 2.0**-22}
"""Rounding of a divergence in float32: of a sum over all words, and of ln p and ln q, which are 2 nats in the mean."""


def drawn(scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    plain = 4 * torch.randn(KEYS, WORDS, generator=generator)
    logits = plain + scale * torch.randn(ROWS, KEYS, WORDS, generator=generator)
    return logits, plain, torch.randint(0, WORDS, (KEYS,), generator=generator)


def definition(logits: Tensor, plain: Tensor, ids: Tensor) -> tuple[list[float], list[float]]:
    """Token by token."""
    losses, divergences = [], []
    for row in logits.double().softmax(-1):
        base = plain.double().softmax(-1)
        divergence = [sum(p * (p / q).log() for p, q in zip(base[k], row[k], strict=True)) for k in range(KEYS)]
        surprise = [-row[k, ids[k + 1]].log() for k in range(KEYS - 1)]
        losses.append(float(sum(surprise) / (KEYS - 1)))
        divergences.append(float(sum(divergence) / KEYS))
    return losses, divergences


@pytest.mark.one_case
@pytest.mark.parametrize("bytes_", [module.BLOCK_BYTES, 4 * ROWS * WORDS * 7, 1], ids=["whole", "blocks", "single"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_losses_are_those_of_the_definition(scale: float, bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", bytes_)
    logits, plain, ids = drawn(scale)
    found, (losses, divergences) = compare(logits, plain, ids), definition(logits, plain, ids)
    assert found.loss.dtype == found.kl.dtype == torch.float64
    assert found.loss.tolist() == pytest.approx(losses, abs=1e-6)
    assert found.kl.tolist() == pytest.approx(divergences, **ROUNDED)
    assert min(divergences) > 1e-8


def test_equal_logits_diverge_by_exactly_nothing() -> None:
    _, plain, ids = drawn()
    found = compare(plain.expand(3, -1, -1), plain, ids)
    assert found.kl.tolist() == [0, 0, 0]
    assert found.loss.unique().numel() == 1


def test_memory_is_that_of_some_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**14)
    logits, plain, ids = drawn()
    assert logits.nbytes > 4 * module.BLOCK_BYTES
    plain = compute_log_probabilities(plain)
    with Held() as held:
        module.compare_losses(logits, plain, ids)
    assert 0 < held.most <= 8 * module.BLOCK_BYTES
