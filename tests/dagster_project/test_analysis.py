"""``analyze``: the tables of one text in memory are those of a study, and the model is left as it was."""

import doctest
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from attention_geometry import Analysis, UserError, analysis, analyze
from extract.capture import one_pass as capturing
from extract.capture.one_pass import ATTENTION
from extract.hub import silence_libraries
from extract.models.architectures import restore_attention
from extract.settings import TEXT_BYTES
from reports.rendering import render_text
from tests.dagster_project.driver import CHECKOUT
from tests.extract.tiny import BOS, WINDOW, text, tiny_model, tiny_tokenizer
from tests.geometry import oracle
from tests.reports.conftest import HOSTILE
from tests.reports.pages import Page

TOKENIZER = tiny_tokenizer()
TEXT = text(12)
N, QUERY = 4, 30


def eager(model: PreTrainedModel, ids: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """By layer, weights (head, query, key) of the model's own eager attention, and value states (head, key, d)."""
    with silence_libraries(), torch.inference_mode(), restore_attention(model):
        model.set_attn_implementation("eager")
        given = model(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=True)
    weights = [of_layer[0].numpy() for of_layer in given.attentions]
    values = [layer.values[0].numpy() for layer in given.past_key_values.layers]
    return weights, [np.repeat(v, len(w) // len(v), axis=0) for w, v in zip(weights, values, strict=True)]


def worst(found: Analysis, model: PreTrainedModel, query: int) -> float:
    """The largest difference of a weight, a contribution or a norm of s_N from its definition by eager attention."""
    ids = found.tokens["token_id"].to_pylist()
    weights, values = eager(model, ids)
    norms = {(row["layer"], row["head"]): row["norm_s"] for row in found.selection.to_pylist() if row["n"] == N}
    differences = []
    for row in found.top_keys.to_pylist():
        alpha, v = weights[row["layer"]][row["head"], query, : query + 1], values[row["layer"]][row["head"]]
        y = alpha[:, None] * v[: query + 1]
        s = np.linalg.norm(y[oracle.selected(alpha, N)].sum(axis=0))
        expected = (alpha[row["position"]], np.linalg.norm(y[row["position"]]), np.sort(alpha)[-row["rank"]], s)
        given = (row["weight"], row["contribution"], row["weight"], norms[row["layer"], row["head"]])
        differences += [abs(one - other) for one, other in zip(given, expected, strict=True)]
    return max(differences)


@pytest.mark.one_case
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma"])
def test_the_tables_are_those_of_the_models_own_eager_attention(architecture: str) -> None:
    model = tiny_model(architecture)
    found = analyze(model, TOKENIZER, TEXT, n=N, query=QUERY)
    assert found.heads.num_rows == found.taxonomy.num_rows == 3 * 4
    assert found.selection.num_rows == 3 * 4 * QUERY
    assert found.top_keys.num_rows == 3 * 4 * 16
    assert found.tokens["token"].to_pylist()[0] == BOS
    assert (found.query, found.n) == (QUERY, N)
    assert worst(found, model, QUERY) < 1e-4
    assert worst(found, model, QUERY + 1) > 1e-2, "another query would be noticed"


def test_keys_that_a_window_hides_are_no_keys() -> None:
    found = analyze(tiny_model("mistral"), TOKENIZER, TEXT, query=QUERY)
    assert min(found.top_keys["position"].to_pylist()) == QUERY + 1 - WINDOW
    assert set(found.heads["n_keys"].to_pylist()) == {WINDOW}
    assert set(found.heads["sink_weight"].to_pylist()) == {None}
    assert "–" in found.page(0, 0).html


def test_a_text_of_one_token_is_measured() -> None:
    found = analyze(tiny_model(), TOKENIZER, "a")
    assert found.heads["n_keys"].to_pylist() == [2] * 12
    assert (found.n, set(found.heads["recall"].to_pylist())) == (1, {1.0})
    assert set(found.top_keys["rank"].to_pylist()) == {1, 2}


# --- the model is left as it was ---


def state(model: torch.nn.Module) -> dict[str, Any]:
    """All that measuring a model could change of it."""
    return {
        "training": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "attention": model.config._attn_implementation,
        "gradients": [parameter.requires_grad for parameter in model.parameters()],
        "weights": [float(parameter.detach().sum()) for parameter in model.parameters()],
    }


@pytest.fixture(params=["sdpa", "eager"])
def in_training(request: pytest.FixtureRequest) -> PreTrainedModel:
    """A model in training, but for one of its layers, with one of the attention implementations."""
    model = tiny_model("gpt2").train()
    model.transformer.h[1].eval()
    model.set_attn_implementation(request.param)
    return model


@pytest.mark.one_case
def test_the_model_is_left_as_it_was(in_training: PreTrainedModel) -> None:
    before = state(in_training)
    first, second = (analyze(in_training, TOKENIZER, TEXT) for _ in range(2))
    assert state(in_training) == before
    assert first.top_keys.equals(second.top_keys), "there is no dropout"


@pytest.mark.parametrize(("raised", "where"), [(RuntimeError, "compute_query_weights"), (KeyboardInterrupt, "_run")])
def test_the_model_is_left_as_it_was_after_an_error(
    in_training: PreTrainedModel, raised: type[BaseException], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(in_training)

    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(capturing, where, fail)
    with pytest.raises((UserError, raised)):
        analyze(in_training, TOKENIZER, TEXT)
    assert state(in_training) == before


def test_parts_of_a_model_keep_their_own_attention() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config={**sizes, "vocab_size": 32, "head_dim": 16, "num_key_value_heads": 1},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
    )
    model = Gemma3ForConditionalGeneration(config)
    model.set_attn_implementation({"text_config": "sdpa", "vision_config": "eager"})

    def implementations() -> list[str | None]:
        return [part._attn_implementation for part in (model.config, config.text_config, config.vision_config)]

    before = implementations()
    assert before[1:] == ["sdpa", "eager"]
    with restore_attention(model):
        model.set_attn_implementation("eager")
        assert implementations() != before
    assert implementations() == before


# --- what is refused ---


def test_characters_that_the_tokenizer_does_not_know_are_told_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    letters = Tokenizer(models.BPE({letter: index for index, letter in enumerate("ab ")}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters)
    analyze(tiny_model(), tokenizer, "ab " * 9 + "é")
    assert "no token for 1 of the 28 characters of the text: " in caplog.text
    with pytest.raises(UserError, match="no token for 9 of the 27 characters of the text; choose a model"):
        analyze(tiny_model(), tokenizer, "aé " * 9)


def test_a_text_that_is_too_long_is_refused_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer takes some 160 bytes of memory a character."""
    monkeypatch.setattr(analysis, "encode_text", None)
    for given in ("a" * (TEXT_BYTES + 1), "ä" * (TEXT_BYTES // 2 + 1)):
        with pytest.raises(UserError, match="has more than 1,048,576 bytes; give a shorter text"):
            analyze(tiny_model(), TOKENIZER, given)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(UserError, match="load the tokenizer that belongs to it"):
        analyze(tiny_model(vocab_size=8), TOKENIZER, TEXT)


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"n": 0}, ValueError, "^n must be at least 1, got 0"),
        ({"n": 99}, ValueError, "^n must be from 1 to [0-9]+, the number of keys before the query, got 99"),
        ({"query": 10_000}, ValueError, "^query must be from 1 to [0-9]+, the last position of the text, got 10000"),
        ({"n": 2.5}, TypeError, "^n must be a whole number, got 2.5"),
        ({"text": ""}, UserError, "has 1 token with <s> before it, but a query needs a key before it"),
        ({"text": text(200)}, UserError, "reads at most 64; give a shorter text"),
        ({"text": "half a \ud83d"}, UserError, "not UTF-8 at character 8"),
        ({"text": b"some bytes"}, TypeError, "^text must be a str, or a list of them, got bytes"),
        ({"text": []}, ValueError, "got an empty list"),
        ({"text": ["a b", ""]}, UserError, r"has 1 token with <s> before it, .* \(text 2 of 2\)"),
        ({"model": TOKENIZER}, TypeError, "^model must be a model that transformers has loaded, got TokenizersBackend"),
    ],
)
def test_arguments_of_other_types_or_that_cannot_be_measured_are_refused_by_their_names(
    changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    given = {"model": tiny_model(), "text": TEXT} | changed
    with pytest.raises(error, match=said):
        analyze(given.pop("model"), TOKENIZER, given.pop("text"), **given)


def test_a_list_of_texts_gives_what_each_gives() -> None:
    model, texts = tiny_model(), (TEXT, TEXT[20:])
    found = analyze(model, TOKENIZER, list(texts), n=np.int64(2), query=np.int32(5))
    assert [one.n for one in found] == [2, 2]
    alone = analyze(model, TOKENIZER, texts[1], n=2, query=5)
    assert found[1].tokens.equals(alone.tokens)
    assert found[1].top_keys.equals(alone.top_keys)
    assert not found[0].top_keys.equals(found[1].top_keys)


def test_a_model_without_weights_is_refused() -> None:
    model = tiny_model()
    model.model.layers[1].mlp.to("meta")
    with pytest.raises(UserError, match=r"has no weights in its part 'model.layers.1.mlp.gate_proj'"):
        analyze(model, TOKENIZER, TEXT)


# --- several threads, and Ctrl-C ---


def test_several_threads_measure_one_model_and_leave_it_as_it_was() -> None:
    model, loud = tiny_model("gpt2").train(), transformers_logging.get_verbosity()
    before, alone = state(model), analyze(model, TOKENIZER, TEXT)
    begin = Barrier(2)

    def measure(_: int) -> Analysis:
        begin.wait()
        return analyze(model, TOKENIZER, TEXT)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(measure, range(2)))
    assert state(model) == before
    assert transformers_logging.get_verbosity() == loud
    assert all(one.top_keys.equals(alone.top_keys) for one in found), "no dropout of another thread's training"


@contextmanager
def use_recorder(model: PreTrainedModel) -> Iterator[None]:
    """Let the model call the attention function of this program inside the context, as a capture does."""
    with restore_attention(model):
        model.set_attn_implementation(ATTENTION)
        yield


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize(("architecture", "own"), [("llama", "eager"), ("gpt2", "sdpa"), ("gpt_oss", "eager")])
def test_a_pass_of_another_thread_computes_with_the_models_own_attention(architecture: str, own: str) -> None:
    """It begins while the model's attention is exchanged, or that is exchanged, or restored, between its layers."""
    model = tiny_model(architecture)
    with suppress(ValueError):  # some have no SDPA
        model.set_attn_implementation(own)
    ids = torch.tensor([TOKENIZER(TEXT)["input_ids"]])
    short = torch.nn.functional.pad(ids[:, :8], (2, 0), value=1)  # padding needs a mask
    mask = torch.nn.functional.pad(torch.ones_like(ids[:, :8]), (2, 0))

    @torch.inference_mode()
    def compute() -> torch.Tensor:
        return torch.cat([model(ids).logits[0], model(short, attention_mask=mask).logits[0]])

    expected = compute()
    with use_recorder(model):
        assert torch.equal(compute(), expected)
    for layer in next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList)):
        inside = ExitStack()
        hook = layer.register_forward_pre_hook(lambda *_, inside=inside: inside.enter_context(use_recorder(model)))
        with inside:
            assert torch.equal(compute(), expected)
        hook.remove()
        inside.enter_context(use_recorder(model))
        hook = layer.register_forward_pre_hook(lambda *_, inside=inside: inside.close())
        assert torch.equal(compute(), expected)
        hook.remove()


# --- the page ---


def read_keys(page: Page) -> list[str]:
    """The text of the keys of a page."""
    return ["".join(text) for _, attributes, text in page.elements if "key" in attributes.get("class", "").split()]


@pytest.fixture(scope="module")
def found() -> Iterator[Analysis]:
    return analyze(tiny_model(), TOKENIZER, TEXT)


def test_the_page_shows_itself_and_escapes_tokens(found: Analysis) -> None:
    hostile = found.top_keys.set_column(
        found.top_keys.schema.get_field_index("token"),
        "token",
        pa.array([HOSTILE[row % len(HOSTILE)] for row in range(found.top_keys.num_rows)]),
    )
    tokens = found.tokens.set_column(2, "token", pa.array([HOSTILE[0]] * found.tokens.num_rows))
    page = render_text(HOSTILE[0], found.query, found.n, tokens, found.heads, hostile, (0, 0))
    parsed = Page(page._repr_html_())
    allowed = {"div", "style", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "sub"}
    assert {tag for tag, _, _ in parsed.elements} <= allowed
    assert not [name for _, attributes, _ in parsed.elements for name in attributes if name.startswith("on")]
    assert any("<" in key for key in read_keys(parsed))


def test_a_notebook_shows_an_analysis_in_words(found: Analysis) -> None:
    shown = replace(found, model="<script>alert(1)</script>")._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;, " in shown
    assert "<script" not in shown
    counts = [int(number) for number in re.findall(r"(\d+) (?:Retriever|Mixer|Reset|Other)", shown)]
    assert sum(counts) == found.heads.num_rows
    assert counts == sorted(counts, reverse=True)


def test_the_text_is_shaded_by_the_weights_of_the_head_that_is_named(found: Analysis) -> None:
    plain, named = (read_keys(Page(page.html)) for page in (found.page(), found.page(1, 2)))
    assert len(plain) == found.heads.num_rows * 6
    assert len(named) == len(plain) + 16
    with pytest.raises(ValueError, match="no head 9 in layer 1"):
        found.page(1, 9)
    with pytest.raises(ValueError, match="layer = 1 and head = None"):
        found.page(1)


# --- the module ---


def test_the_examples_of_the_docstrings_run() -> None:
    with silence_libraries():
        done = doctest.testmod(analysis)
    assert done.attempted >= 7
    assert done.failed == 0


def test_the_tokenizer_without_bos_begins_with_the_text() -> None:
    tokenizer: PreTrainedTokenizerBase = tiny_tokenizer(bos=False)
    assert analyze(tiny_model(), tokenizer, TEXT).tokens["token"].to_pylist()[0] != BOS
    assert analyze(tiny_model(), TOKENIZER, TEXT, bos="never").tokens["token"].to_pylist()[0] != BOS


def test_the_examples_of_the_page_give_what_they_show(mine: Path) -> None:
    page = CHECKOUT / "docs" / "library.md"
    found = doctest.testfile(str(page), module_relative=False, globs={"ROOT": mine}, encoding="utf-8")
    assert found.attempted >= 9
    assert found.failed == 0
