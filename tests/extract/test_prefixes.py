"""A query's row in a pass of a whole text equals that in a pass up to it, or several queries are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Phi3Config, PreTrainedConfig

from extract.batches import TOLERANCE, check_row, read_alone
from extract.capture import capture, probe
from extract.extraction import extract
from extract.settings import ExtractionSettings
from storage.errors import UserError
from storage.files.places import LocalPlace
from tests.extract.families import KEYS, ids
from tests.extract.tiny import PLAIN, text, tiny_tokenizer
from tests.refusals import read_refusal

pytestmark = pytest.mark.usefixtures("noiseless")

_SIZES: dict[str, Any] = {
    **PLAIN,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32}
_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.2, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0]}


def make_longrope() -> PreTrainedConfig:
    """Phi-3 whose positions are others in texts of more than 32 tokens."""
    return Phi3Config(**_SIZES, original_max_position_embeddings=32, rope_parameters=_LONG | _FACTORS)


def make_dynamic() -> PreTrainedConfig:
    """LLaMA whose positions are rescaled beyond 32 tokens, which it is made to read."""
    return LlamaConfig(
        **(_SIZES | {"max_position_embeddings": 32}),
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    )


def make_model(config: PreTrainedConfig) -> Any:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("make", [make_longrope, make_dynamic])
def test_positions_that_are_rescaled_by_the_length_of_the_text_are_noticed(make: Any) -> None:
    model, tokens = make_model(make()), ids(1)
    known = probe(model, tokens[:, :16])
    alone = read_alone(model, known, tokens[0].numpy(), 20)
    short = capture(model, known, tokens[:, :32], [20]).weights[:, 0, 0]
    check_row("M", alone, short, 32, torch.float32)
    whole = capture(model, known, tokens, [20]).weights[:, 0, 0]
    with pytest.raises(UserError, match=r"query at 20 otherwise in a text of 48 tokens than in one of 21"):
        check_row("M", alone, whole, KEYS, torch.float32)


def test_queries_before_the_end_are_refused_where_their_rows_are_others(tmp_path: Path) -> None:
    """The last query, and those whose texts all are as long as the rescaled ones, are measured."""
    make_model(make_longrope()).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "book.txt").write_text(text(800), encoding="utf-8")

    def run(queries: tuple[int, ...]) -> Any:
        asked = {"model": str(tmp_path / "model"), "corpus": str(tmp_path / "book.txt"), "sequences": 2}
        asked |= {"context_length": 48, "queries": queries}
        return extract(ExtractionSettings.model_validate(asked), study="long", path=LocalPlace(tmp_path / "store"))

    for queries in ((20, 47), (31, 40)):
        said = f"at {queries[0]} otherwise in a text of 48 tokens than in one of {queries[0] + 1}"
        assert said in read_refusal(run, queries)
        assert not (tmp_path / "store").exists()
    assert run((32, 40, 47)).written == 2


def test_what_is_told_of_a_row_is_its_largest_layer() -> None:
    alone = torch.zeros(3, 2, 4)
    alone[..., 0] = 1
    whole = torch.zeros(3, 2, 8)
    whole[..., 0] = 1
    alone[2] = torch.nan  # a layer without attention
    check_row("M", alone, whole, 8, torch.float32)
    whole[1, :, 0], whole[1, :, 1] = 0.7, 0.3
    with pytest.raises(UserError, match=r"0\.30 of the weight moves in layer 1"):
        check_row("M", alone, whole, 8, torch.float32)
    assert TOLERANCE[torch.float32] < 0.01 < TOLERANCE[torch.bfloat16] < 0.4
