"""What heads look at, as it is captured: the definition on eager's matrices."""

import numpy as np
import pytest
import torch

from extract import attention, two_pass
from extract.buffers import Buffers
from extract.capture import Capture, capture
from geometry.quantities import PATTERNS
from tests.extract.families import (
    KEYS,
    QUERIES,
    Family,
    attention_of,
    every_family,
    ids,
    model_of,
    plain_of,
)
from tests.geometry.patterns_oracle import measure_all

pytestmark = pytest.mark.usefixtures("noiseless")

TOLERANCE = 1e-5


def read(family: Family) -> Capture:
    return capture(model_of(family.name), attention_of(family.name), ids(), QUERIES)


@pytest.mark.one_case
@every_family
def test_they_are_what_the_definition_makes_of_eager_s_matrices(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "PATTERN_BYTES", {"cpu": 7 * (4 + 1) * KEYS * 4})  # 7 rows of 4 heads and chance
    monkeypatch.setattr(two_pass, "BLOCK_BYTES", len(attention_of(family.name).layers) * 7 * 2 * 4 * KEYS * 4)
    found = read(family)
    for layer, weights in plain_of(family.name).weights.items():
        heads = weights.shape[1]
        np.testing.assert_allclose(found.patterns[layer, :, :heads], measure_all(weights, ids()), atol=TOLERANCE)
        assert found.patterns[layer, :, heads:].isnan().all()
        visible = (weights > 0).any(dim=1, keepdim=True).double()
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        np.testing.assert_allclose(found.chance[layer], measure_all(uniform, ids())[:, 0], atol=TOLERANCE)


def test_what_was_measured_before_does_not_stay() -> None:
    """The memory of a batch is used again, also by one that has no patterns."""
    layers = attention_of("Llama 2, Llama 3").layers
    buffers = Buffers(layers, batch=1, queries=1, keys=4, dtype=torch.float32)
    given = torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 4, 16)
    buffers.put(0, *given, patterns=(torch.ones(1, 4, len(PATTERNS)), torch.ones(1, len(PATTERNS))))
    assert (buffers.tensors["patterns"][0] == 1).all()
    buffers.put(0, *given)
    assert buffers.tensors["patterns"][0].isnan().all()
    assert buffers.tensors["chance"][0].isnan().all()
