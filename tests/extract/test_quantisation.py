"""Weights rounded to a type of GGUF are those that a file of this type would give back."""

from pathlib import Path

import numpy as np
import pytest
import torch

from extract.models import describe, load, round_weights
from extract.settings import ExtractionSettings
from storage.errors import UserError
from tests.extract.tiny import tiny_model, write_checkpoint


def round_blocks(rows: np.ndarray, kind: str) -> np.ndarray:
    """The definition: blocks of 32 numbers, each a scale, perhaps a minimum, and whole numbers.

    Scales and minima are stored as float16, and the numbers are rounded with those before they were.
    """
    blocks = rows.astype(np.float32).reshape(-1, 32)
    if kind == "Q8_0":
        scale, least = np.abs(blocks).max(1, keepdims=True) / 127, np.zeros((len(blocks), 1))
    else:
        least = blocks.min(1, keepdims=True)
        scale = (blocks.max(1, keepdims=True) - least) / 15
    numbers = (blocks - least) / np.where(scale == 0, 1, scale)  # the row of the padding token is zero
    half = np.copysign(np.floor(np.abs(numbers) + 0.5), numbers)  # halves away from 0
    stored = scale.astype(np.float16).astype(np.float64), least.astype(np.float16).astype(np.float64)
    return (half * stored[0] + stored[1]).reshape(rows.shape)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_matrices_are_rounded_by_blocks_and_vectors_are_not(kind: str, architecture: str) -> None:
    before, model = (dict(tiny_model(architecture).named_parameters()) for _ in range(2))
    rounded = tiny_model(architecture)
    round_weights(rounded, kind)
    after = dict(rounded.named_parameters())
    for name, weight in model.items():
        if weight.ndim < 2:
            assert torch.equal(after[name], before[name])
            continue
        transposed = "c_" in name  # GPT-2 multiplies by the transposed matrix
        given = weight.detach().numpy().T if transposed else weight.detach().numpy()
        found = after[name].detach().numpy().T if transposed else after[name].detach().numpy()
        expected = round_blocks(given, kind)
        assert np.abs(found - given).max() > 0
        close = np.isclose(found, expected, rtol=1e-5, atol=1e-6)
        assert close.mean() > 0.999, (name, close.mean())  # numbers halfway between two may go either way
        if transposed:
            assert not np.allclose(found, round_blocks(given.T, kind).T, atol=1e-6), "blocks along the other axis"


def test_a_study_says_what_its_weights_were_rounded_to(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", "llama")
    given = {"corpus": "repeated", "context_length": 16, "sequences": 1}
    settings = ExtractionSettings.model_validate({"model": {"id": str(tmp_path / "m"), "quantised": "Q4_1"}, **given})
    plain = ExtractionSettings.model_validate({"model": str(tmp_path / "m"), **given})
    described = describe(settings)
    assert described.provenance["model"]["quantisation"].startswith("rounded to Q4_1, dequantised to float32")
    assert "quantisation" not in describe(plain).provenance["model"]
    assert "quantised" not in plain.model.model_dump()
    rounded, exact = load(described).get_input_embeddings().weight, load(describe(plain)).get_input_embeddings().weight
    assert not torch.equal(rounded, exact)
    reference = torch.from_numpy(round_blocks(exact.detach().numpy(), "Q4_1")).float()
    assert torch.allclose(rounded, reference, atol=1e-5)


def test_what_cannot_be_rounded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has rows of 40, no multiple of 32"):
        round_weights(tiny_model("llama", intermediate_size=40), "Q8_0")
    for model in ({"id": str(tmp_path), "weights": "random"}, {"id": "synthetic"}):
        given = {"model": {**model, "quantised": "Q8_0"}, "corpus": "prose", "context_length": 8}
        with pytest.raises(ValueError, match="only allowed with trained weights"):
            ExtractionSettings.model_validate(given)
