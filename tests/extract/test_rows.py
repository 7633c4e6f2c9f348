"""All rows of attention: those of eager attention, and what is added and kept of them, beside float64 loops."""

import math

import numpy as np
import pytest
import torch

from extract.effects import rows
from extract.effects.rows import LargestWeights, RowSums, read_rows
from tests.extract.families import KEYS, attention_of, ids, model_of, plain_of

pytestmark = pytest.mark.usefixtures("noiseless")

HEADS, K = 3, 40
BLOCKS = (range(1), range(1, 12), range(12, K))


@pytest.mark.parametrize("family", ["Gemma 2", "gpt-oss", "GPT-J"])  # caps and windows, learned sinks, two passes
def test_rows_are_those_of_eager_attention(family: str) -> None:
    model, attention, found = model_of(family), attention_of(family), {}

    def take(layer: int, at: torch.Tensor, weights: torch.Tensor) -> None:
        of_layer = found.setdefault(layer, torch.full((len(weights), KEYS, KEYS), torch.nan))
        assert of_layer[:, at].isnan().all()
        of_layer[:, at] = 0
        of_layer[:, at, : weights.shape[-1]] = weights.clone()

    read_rows(model, attention, ids()[1], take)
    expected = plain_of(family).weights
    assert sorted(found) == sorted(expected)
    for layer, weights in found.items():
        torch.testing.assert_close(weights, expected[layer][1].float(), rtol=0, atol=2e-5)


def draw() -> tuple[torch.Tensor, torch.Tensor]:
    """Few different tokens (K,), and causal weights (H, K, K), many of them small, that leave a part to a sink."""
    generator = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(HEADS, K, K, generator=generator)
    weights = logits.masked_fill(torch.ones(K, K).triu(1).bool(), -math.inf).softmax(dim=-1)
    return torch.randint(0, 7, (K,), generator=generator), 0.9 * weights


def add(taker: RowSums | LargestWeights, weights: torch.Tensor) -> None:
    for block in BLOCKS:
        taker.take(1, torch.tensor(block), weights[:, block.start : block.stop, : block.stop])


def loop(tokens: list[int], weights: np.ndarray) -> tuple[list[float], float]:
    """The sums and the largest weight of one head, (K, K), term by term."""
    sums, largest = [0.0] * 6, 0.0
    for q in range(K):
        for k in range(q + 1):
            weight = float(weights[q, k])
            terms = [weight * (k == q), weight * (k == q - 1), -weight * math.log(weight) if weight else 0.0]
            terms += [weight * (q - k), weight * (q - k) ** 2]
            terms += [weight if k >= 1 and tokens[k - 1] == tokens[q] and weight >= 0.01 else 0.0]
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
            largest = max(largest, weight) if q and k else largest
    return sums, largest


def test_sums_over_rows_are_those_of_a_loop() -> None:
    tokens, weights = draw()
    found = RowSums.begin(tokens, 2, HEADS + 1)
    add(found, weights)
    assert not found.sums[0].any()
    assert not found.sums[1, HEADS].any()
    for head in range(HEADS):
        sums, largest = loop(tokens.tolist(), weights[head].double().numpy())
        np.testing.assert_allclose(found.sums[1, head], sums, rtol=2e-6)
        assert found.largest[1, head] == largest
        assert largest < float(weights[head].max())  # the first row and column are left out


def test_a_wrong_sum_is_told_from_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, weights = draw()
    sums, _ = loop(tokens.tolist(), weights[0].double().numpy())
    later, all_weights = RowSums.begin(tokens.roll(1), 2, HEADS), RowSums.begin(tokens, 2, HEADS)
    add(later, weights)
    monkeypatch.setattr(rows, "LEAST_INDUCTION", 0.0)
    add(all_weights, weights)
    for wrong in (later, all_weights):
        assert wrong.sums[1, 0, 5] != pytest.approx(sums[5], rel=1e-4)


def test_the_largest_weights_of_each_row_are_kept() -> None:
    _, weights = draw()
    wanted = np.array([[True] * HEADS, [True, False, True]])
    found = LargestWeights(K, wanted)
    add(found, weights)
    assert sorted(found.parts) == [(1, 0), (1, 2)]
    counts = set()
    for head in (0, 2):
        places, values = found.join(1, head)
        expected = {}
        for q, row in enumerate(weights[head].tolist()):
            largest = sorted(range(q + 1), key=lambda k: -row[k])[:8]
            kept = [k for k in largest if row[k] >= 0.005]
            expected |= {q * K + k: row[k] for k in sorted(kept)}
            counts.add(len(kept))
        assert places.tolist() == list(expected)
        assert values.tolist() == list(expected.values())
    assert {1, 8} < counts  # a limit of number and one of size
