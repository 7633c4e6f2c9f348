"""What heads look at: the definitions, row by row in float64, what is known of made heads, and powers of 2."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from geometry import powers
from geometry.accelerate import compile_kernel
from geometry.patterns import HIDDEN, count_rows, sum_in_passes, sum_patterns
from geometry.powers import power_of_two
from geometry.quantities import PATTERNS
from tests.geometry.patterns_oracle import measure_all

TOLERANCE = 1e-5
KEYS = 40


def draw(vocabulary: int, window: int = KEYS) -> tuple[Tensor, Tensor]:
    """Softmax matrices (2, 3, K, K) of random logits whose queries see ``window`` keys, and random tokens (2, K)."""
    generator = torch.Generator().manual_seed(0)
    back = torch.arange(KEYS)[:, None] - torch.arange(KEYS)
    logits = 3 * torch.randn(2, 3, KEYS, KEYS, generator=generator)
    weights = logits.masked_fill((back < 0) | (back >= window), -math.inf).softmax(-1)
    return weights, torch.randint(vocabulary, (2, KEYS), generator=generator)


def measure_in_blocks(weights: Tensor, tokens: Tensor, size: int, window: int = KEYS) -> Tensor:
    """The patterns (B, H, P), from blocks of rows of which each has the keys up to its last row."""
    total = torch.zeros(*weights.shape[:2], len(PATTERNS))
    for rows in torch.arange(1, weights.shape[-1]).split(size):
        end = int(rows[-1]) + 1
        logits = weights[:, :, rows, :end].log().clamp(min=HIDDEN)
        total += torch.stack([sum_patterns(*of, rows) for of in zip(logits, tokens[:, :end], strict=True)])
    return total / count_rows(tokens, torch.arange(KEYS)[None] < window)[:, None]


@pytest.mark.parametrize(
    ("vocabulary", "size", "window"), [(1, 7, KEYS), (6, 1, KEYS), (50, KEYS, KEYS), (10**9, 7, KEYS), (6, 7, 9)]
)
def test_blocks_of_rows_give_what_the_definition_gives_row_by_row(vocabulary: int, size: int, window: int) -> None:
    weights, tokens = draw(vocabulary, window)
    found = measure_in_blocks(weights, tokens, size, window)
    np.testing.assert_allclose(found, measure_all(weights, tokens, [q < window for q in range(KEYS)]), atol=TOLERANCE)


def test_a_sink_that_a_window_hides_is_left_out_and_not_counted_as_0() -> None:
    weights, tokens = draw(6, window=9)
    sinks = [PATTERNS.index(name) for name in PATTERNS if "sink" in name]
    found, as_zero = (measure_in_blocks(weights, tokens, 7, window)[..., sinks] for window in (9, KEYS))
    assert (found - as_zero).amax(dim=(0, 1)).min() > 100 * TOLERANCE, "weights of 0 would be noticed"
    assert count_rows(tokens, torch.arange(KEYS)[None] < 9)[:, PATTERNS.index("sink")].tolist() == [8, 8]
    never = measure_in_blocks(*draw(6, window=1), 7, window=1)
    assert [never[..., at].isnan().all().item() for at in range(len(PATTERNS))] == ["sink" in name for name in PATTERNS]


def test_chance_is_what_uniform_weights_give() -> None:
    _, tokens = draw(6)
    back = torch.arange(KEYS)[:, None] - torch.arange(KEYS)
    visible = ((back >= 0) & (back < 3)).expand(2, 1, KEYS, KEYS)
    by_hand = visible.double() / torch.arange(1, KEYS + 1)[:, None].clamp(max=3)
    found = measure_in_blocks(visible.float(), tokens, 7, 3)
    np.testing.assert_allclose(found, measure_all(by_hand, tokens, [q < 3 for q in range(KEYS)]), atol=TOLERANCE)


def test_weights_on_the_next_key_and_another_entropy_are_noticed() -> None:
    weights, tokens = draw(6)
    right = measure_all(weights, tokens)
    shifted = measure_in_blocks(weights.roll(1, dims=-1), tokens, 7)[..., :-1].numpy()
    assert np.abs(shifted - right[..., :-1]).max(axis=(0, 1)).min() > 100 * TOLERANCE
    bits = measure_in_blocks(weights, tokens, 7)[..., -1].numpy() / math.log(2)
    assert np.abs(bits - right[..., -1]).min() > 100 * TOLERANCE


def test_a_learned_sink_takes_weight_from_every_key() -> None:
    """The definition on the weights of a softmax over one more logit; a head without a sink has one of -inf."""
    weights, tokens = draw(6)
    sinks = torch.tensor([1.0, -math.inf, 30.0])
    logits = weights.log().clamp(min=HIDDEN)
    longer = torch.cat([logits, sinks[None, :, None, None].expand(2, -1, KEYS, 1)], dim=-1).softmax(-1)[..., :-1]
    rows = torch.arange(1, KEYS)
    found = torch.stack([sum_patterns(*of, rows, sinks) for of in zip(logits[:, :, 1:], tokens, strict=True)])
    expected = measure_all(longer, tokens)
    np.testing.assert_allclose(found / count_rows(tokens)[:, None], expected, atol=TOLERANCE)
    assert np.abs(measure_all(weights, tokens) - expected)[:, ::2].min(axis=(0, 1)).min() > 100 * TOLERANCE


def draw_long_rows() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of rows of thousands of keys, the first 100 hidden from one head; tokens, rows and learned sinks."""
    generator, rows = torch.Generator().manual_seed(1), torch.arange(2500, 2503)
    logits = 3 * torch.randn(5, len(rows), 2503, generator=generator)
    logits[1, :, :100] = HIDDEN
    logits.masked_fill_(torch.arange(2503) > rows[:, None], HIDDEN)
    return logits, torch.randint(300, (2503,), generator=generator), rows, torch.tensor([1.0, -math.inf, 9, 0, 30])


@pytest.mark.parametrize("threads", [1, 3])
def test_long_rows_agree_with_float64_passes_in_any_number_of_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU runs is the reference, in float64; the same operations in float32 agree as well."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    logits, tokens, rows, sinks = draw_long_rows()
    exact = sum_in_passes(logits.double(), tokens, rows, sinks.double())
    assert (exact[1, [PATTERNS.index(name) for name in ("sink", "sink_matched")]] == 0).all()
    for measure in (sum_patterns, sum_in_passes):
        np.testing.assert_allclose(measure(logits.clone(), tokens, rows, sinks), exact, atol=TOLERANCE, rtol=TOLERANCE)
    expected = torch.cat([logits, sinks[:, None, None].expand(-1, len(rows), 1)], dim=-1).softmax(-1)[..., :-1]
    for measure in (sum_patterns, sum_in_passes):  # what is kept are the weights
        kept = logits.clone()
        measure(kept, tokens, rows, sinks, keep=True)
        np.testing.assert_allclose(kept, expected, atol=1e-9, rtol=2e-5)
        assert (kept[expected == 0] < 1e-37).all()
    fewer = sum_in_passes(logits[..., 1:].double(), tokens[1:], rows - 1, sinks.double())
    assert (fewer - exact).abs().max() > 10 * TOLERANCE


@compile_kernel
def raise_all(given: np.ndarray, out: np.ndarray) -> None:
    for place in range(given.size):
        out[place] = power_of_two(given[place])


def measure_error(given: np.ndarray, found: np.ndarray) -> float:
    exact = np.exp2(given.astype(np.float64))
    return float(np.abs(found / exact - 1).max())


def test_powers_of_two_have_the_stated_error() -> None:
    given = np.concatenate([np.linspace(-126, 127, 100_001), np.arange(-126, 128)]).astype(np.float32)
    raise_all(given, found := np.empty_like(given))
    assert measure_error(given, found) < 3e-7


def test_a_term_less_of_a_power_is_noticed() -> None:
    given = np.linspace(-0.5, 0.5, 1001).astype(np.float32)
    shorter = sum(float(c) * given.astype(np.float64) ** k for k, c in enumerate(powers.POWERS[:-1]))
    assert measure_error(given, np.asarray(shorter)) > 1e-6
