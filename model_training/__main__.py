"""Training of the embedded model: tokenizer, weights and model card, from plain text.

Run it as ``python -m model_training --text DIR --state STATE``, where ``DIR`` holds public-domain English
``*.txt`` files. Every 500 steps it measures the model on held-out text and saves its state in ``STATE``; a later run
with the same ``STATE`` continues from there. With ``--recipe training`` it trains the smaller model of the
family ``training`` and also writes its checkpoints. This module is not part of the wheel.
"""

import argparse
import json
import math
import platform
import random
import sysconfig
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from extract.embedded.manual import list_topics

BOS, EOS = "<s>", "</s>"

SHIPPED = Path(__file__).parents[1] / "extract" / "embedded"
"""Where the package has its models."""

ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
"""Configuration and model by name; Qwen3 is LLaMA with normalised queries and keys."""

MARK = 500
"""Steps between two measurements on held-out text; the state is saved after each of them."""

WINDOWS = 32
"""Number of held-out windows of each kind of text that are used for all measurements."""


@dataclass(frozen=True)
class Recipe:
    """All choices that determine the trained weights; ``seed`` drives data order and initialisation."""

    seed: int = 20260
    architecture: str = "llama"
    vocabulary: int = 4096
    context: int = 512
    rope_theta: float = 1e6
    windows_per_step: int = 8
    steps: int = 4600
    warmup: int = 500
    peak_learning_rate: float = 3e-3
    final_learning_rate: float = 3e-5
    decay_steps: int = 1600
    weight_decay: float = 0.5
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    width: int = 256
    mlp: int = 704
    source_characters: int = 70_000_000
    share_english: float = 0.35
    share_manual: float = 0.10
    held_out_english: float = 0.02
    share_repeated: float = 0.0
    """Share of windows of random tokens in which a block of ``LEAST_PERIOD`` tokens to half a window is repeated."""
    checkpoints: tuple[int, ...] = ()
    """Steps at which a checkpoint is written and measured; if empty, it is measured every ``MARK`` steps."""

    @property
    def marks(self) -> tuple[int, ...]:
        """The steps at which the model is measured."""
        return self.checkpoints or (*range(MARK, self.steps, MARK), self.steps)


RECIPES = {
    "embedded": Recipe(),
    "training": Recipe(
        vocabulary=258,
        context=128,
        rope_theta=1e3,
        windows_per_step=16,
        steps=2048,
        warmup=100,
        peak_learning_rate=3e-3,
        decay_steps=683,
        weight_decay=0.1,
        layers=2,
        head_dim=16,
        width=128,
        mlp=256,
        source_characters=0,
        share_english=0.4,
        share_manual=0.1,
        share_repeated=0.5,
        checkpoints=(0, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048),
    ),
}
"""The recipes of the models that the package ships."""

LEAST_PERIOD = 4
"""Shortest block of random tokens that is repeated."""


def read_english(folder: Path) -> list[str]:
    """The ``*.txt`` files of ``folder``, each as one document."""
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.txt"))]


def read_sources(characters: int, seed: int) -> list[str]:
    """Python sources of about ``characters`` in total: the standard library, then installed packages in random order.

    The manual itself, tests and very large files are left out.
    """
    if not characters:
        return []
    folders = sysconfig.get_paths()
    library = [path for path in _find_sources(Path(folders["stdlib"])) if "site-packages" not in path.parts]
    packages = _find_sources(Path(folders["purelib"]))
    random.Random(seed).shuffle(packages)
    texts, total = [], 0
    for path in [*library, *packages]:
        if total >= characters:
            break
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        total += len(texts[-1])
    return texts


def _find_sources(root: Path) -> list[Path]:
    """The Python files under ``root`` except the manual, tests and very large files, in order of their names."""
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if "pydoc_data" not in path.parts and "/test" not in path.as_posix() and path.stat().st_size <= 400_000
    ]


def train_tokenizer(texts: list[str], recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer that puts BOS before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=recipe.context
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """All texts as one stream of token ids, int64 of shape (tokens,); EOS ends each text."""
    if not texts:
        return torch.zeros(0, dtype=torch.int64)
    eos = tokenizer.eos_token_id
    pieces = [
        np.array([*encoding.ids, eos], dtype=np.int64)
        for encoding in tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
    return torch.from_numpy(np.concatenate(pieces))


def build_model(recipe: Recipe) -> PreTrainedModel:
    """The untrained model."""
    configuration, model = ARCHITECTURES[recipe.architecture]
    built: PreTrainedModel = model(
        configuration(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.width,
            intermediate_size=recipe.mlp,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            head_dim=recipe.head_dim,
            max_position_embeddings=recipe.context,
            rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
        )
    )
    return built


def draw_windows(stream: torch.Tensor, count: int, recipe: Recipe, generator: torch.Generator | None) -> torch.Tensor:
    """``count`` windows (count, context) that start with BOS: at random, or evenly spaced without generator."""
    body = recipe.context - 1
    last = len(stream) - body
    if generator is None:
        starts = torch.linspace(0, last - 1, count).long()
    else:
        starts = torch.randint(0, last, (count,), generator=generator)
    rows = stream[starts[:, None] + torch.arange(body)]
    return torch.cat([torch.zeros(count, 1, dtype=torch.int64), rows], dim=1)


def draw_batch(
    streams: dict[str, torch.Tensor], recipe: Recipe, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """One training batch, drawn from the kinds of text by their shares.

    Returns
    -------
    tuple
        Token ids (windows_per_step, context), and which of them can be predicted, of the same shape: all of text, and
        of repeated random tokens those after the first block.
    """
    named = [recipe.share_english, recipe.share_manual, recipe.share_repeated]
    shares = torch.tensor([*named[:2], 1 - sum(named), *([named[2]] if named[2] else [])]).clamp(min=0)
    kinds = torch.multinomial(shares, recipe.windows_per_step, replacement=True, generator=generator)
    names = list(streams)
    drawn = [
        _mark_known(draw_windows(streams[names[kind]], 1, recipe, generator))
        if kind < len(names)
        else repeat_tokens(recipe, generator)
        for kind in kinds.tolist()
    ]
    return torch.cat([ids for ids, _ in drawn]), torch.cat([known for _, known in drawn])


def _mark_known(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, all of which can be predicted."""
    return ids, torch.ones_like(ids, dtype=torch.bool)


def repeat_tokens(recipe: Recipe, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A window (1, context) of BOS and a block of random tokens, repeated; and which tokens come after the first block.

    The length of the block is drawn from ``LEAST_PERIOD`` to half the window, uniformly on a log scale, so that the
    distance to the earlier copy cannot be learned instead of the copy.
    """
    longest = recipe.context / 2 / LEAST_PERIOD
    period = int(LEAST_PERIOD * longest ** torch.rand(1, generator=generator).item())
    block = torch.randint(2, recipe.vocabulary, (period,), generator=generator)
    tokens = block.repeat(recipe.context // period + 1)[: recipe.context - 1]
    ids = torch.cat([torch.zeros(1, dtype=torch.int64), tokens])[None]
    return ids, torch.arange(recipe.context)[None] > period


def compute_learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, the peak, and a linear decay over the last ``decay_steps`` to the final learning rate."""
    if step < recipe.warmup:
        return recipe.peak_learning_rate * (step + 1) / recipe.warmup
    left = min(1.0, (recipe.steps - step) / recipe.decay_steps)
    return recipe.final_learning_rate + (recipe.peak_learning_rate - recipe.final_learning_rate) * left


def compute_token_losses(model: Any, ids: torch.Tensor, known: torch.Tensor | None = None) -> torch.Tensor:
    """Mean cross entropy in nats a token over the next-token predictions of ``ids`` (windows, context).

    Of all tokens, or of those that are ``known`` to be predictable, a mask of the same shape.
    """
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1).float()
    wanted = ids[:, 1:].flatten() if known is None else ids[:, 1:].masked_fill(~known[:, 1:], -100).flatten()
    return cross_entropy(logits, wanted)


@torch.inference_mode()
def compute_held_out_loss(model: PreTrainedModel, ids: torch.Tensor) -> float:
    """Mean held-out loss in nats a token, four windows at a time."""
    losses = [compute_token_losses(model, part).item() * len(part) for part in torch.split(ids, 4)]
    return sum(losses) / len(ids)


def compute_bigram_loss(train: torch.Tensor, ids: torch.Tensor, vocabulary: int, strength: float = 4.0) -> float:
    """Held-out loss in nats a token of a bigram model, interpolated with the unigram model, counted on ``train``."""
    pairs = train[:-1] * vocabulary + train[1:]
    counts = torch.bincount(pairs, minlength=vocabulary**2).reshape(vocabulary, vocabulary)
    unigram = (torch.bincount(train, minlength=vocabulary) + 0.5).double()
    unigram /= unigram.sum()
    before, after = ids[:, :-1].flatten(), ids[:, 1:].flatten()
    likelihood = (counts[before, after] + strength * unigram[after]) / (counts.sum(1)[before] + strength)
    return -likelihood.log().mean().item()


@torch.inference_mode()
def measure_attention(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, Any]:
    """Measure the attention of the last query of each window, and the norm of the value state at position 0.

    Returns
    -------
    dict
        ``saturated``: share of (window, head) with a largest weight above 0.99; ``effective_keys``: median over heads
        of the mean over windows of e^entropy, and by layer; ``sink_heads``: share of heads whose mean weight on
        position 0 is above 0.3; ``sink_weight``: the largest such mean weight by layer; ``sink_norm``: ‖v_0‖ over the
        median norm of the others, mean over windows and the KV groups of these heads (NaN without any), and by layer.
    """
    values: list[torch.Tensor] = []
    heads, width = model.config.num_key_value_heads, model.config.head_dim
    layers = model.model.layers

    def keep(_module: torch.nn.Module, _arguments: object, output: torch.Tensor) -> None:
        values.append(output.unflatten(-1, (heads, width)).float().norm(dim=-1))

    hooks = [layer.self_attn.v_proj.register_forward_hook(keep) for layer in layers]
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    rows = []
    for part in torch.split(ids, 8):
        attentions = model(input_ids=part, output_attentions=True).attentions
        rows.append(torch.stack([weights[:, :, -1].float() for weights in attentions], dim=1))
    model.set_attn_implementation(before)
    for hook in hooks:
        hook.remove()
    weights = torch.cat(rows)  # (window, layer, head, key)
    norms = torch.stack([torch.cat(values[layer :: len(layers)]) for layer in range(len(layers))], dim=1)
    ratio = (norms[:, :, 0] / norms[:, :, 1:].median(dim=2).values).mean(0)  # (layer, kv_head)
    effective = torch.special.entr(weights).sum(-1).exp().mean(0)  # (layer, head)
    sink = weights[..., 0].mean(0)
    resting = sink > 0.3
    of_heads = ratio.repeat_interleave(sink.shape[1] // heads, dim=1)
    return {
        "saturated": (weights.max(-1).values > 0.99).float().mean().item(),
        "effective_keys": effective.median().item(),
        "effective_keys_by_layer": effective.median(dim=1).values.tolist(),
        "sink_heads": resting.float().mean().item(),
        "sink_weight_by_layer": sink.max(dim=1).values.tolist(),
        "sink_norm": of_heads[resting].mean().item() if resting.any() else math.nan,
        "sink_norm_by_layer": ratio.mean(dim=1).tolist(),
    }


def measure(model: PreTrainedModel, held_out: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Losses on each kind of held-out text, and ``measure_attention`` over both kinds together."""
    losses = {name: compute_held_out_loss(model, ids) for name, ids in held_out.items()}
    return {"loss": losses, **measure_attention(model, torch.cat(list(held_out.values())))}


@dataclass
class Training:
    """A training run that can be stopped and continued."""

    recipe: Recipe
    state: Path
    """Folder of the saved state and of the measurements so far."""
    out: Path
    """Folder of the checkpoints, one in each."""
    tokenizer: PreTrainedTokenizerFast

    def __post_init__(self) -> None:
        torch.manual_seed(self.recipe.seed)
        self.generator = torch.Generator().manual_seed(self.recipe.seed)
        self.model = build_model(self.recipe)
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": self.recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            betas=(0.9, 0.95),
            fused=True,
        )
        self.step = 0
        self.seconds = 0.0
        self.marks: list[dict[str, Any]] = []
        self._continue()

    @property
    def _file(self) -> Path:
        return self.state / "state.pt"

    def _continue(self) -> None:
        """Load the state that an earlier process saved."""
        if not self._file.exists():
            return
        saved = torch.load(self._file, weights_only=True)
        if saved["recipe"] != json.dumps(asdict(self.recipe)):
            msg = f"{self._file} was saved with another recipe: {saved['recipe']}; use another --state"
            raise SystemExit(msg)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.generator.set_state(saved["generator"])
        self.step, self.seconds = saved["step"], saved["seconds"]
        self.marks = json.loads(saved["marks"])

    def _save(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        torch.save(
            {
                "recipe": json.dumps(asdict(self.recipe)),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "generator": self.generator.get_state(),
                "step": self.step,
                "seconds": self.seconds,
                "marks": json.dumps(self.marks),
            },
            partial,
        )
        partial.replace(self._file)

    def run(self, streams: dict[str, torch.Tensor], held_out: dict[str, torch.Tensor]) -> None:
        """Train to the last step; measure, print and save at the marks of the recipe."""
        compiled = torch.compile(self.model)
        for mark in self.recipe.marks:
            if mark < self.step or any(done["step"] == mark for done in self.marks):
                continue
            started = time.monotonic()
            running = [self._take_step(compiled, streams) for _ in range(mark - self.step)]
            self.seconds += time.monotonic() - started
            train = {"train": float(np.mean(running[-100:]))} if running else {}
            self.marks.append({"step": self.step, **train, **measure(self.model, held_out)})
            print(json.dumps(_round_numbers(self.marks[-1])), flush=True)
            if self.recipe.checkpoints:
                write_checkpoint(self.model, self.tokenizer, self.out / f"step{self.step}")
            self._save()

    def _take_step(self, compiled: Any, streams: dict[str, torch.Tensor]) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = compute_learning_rate(self.step, self.recipe)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compute_token_losses(compiled, *draw_batch(streams, self.recipe, self.generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.item()


def _round_numbers(value: Any) -> Any:
    """A JSON document with numbers rounded to four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _round_numbers(part) for name, part in value.items()}
    return [_round_numbers(part) for part in value] if isinstance(value, list) else value


# --- results ---


def write_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights, rounded to bfloat16, and tokenizer to ``folder``; the model keeps its own."""
    rounded: Any = deepcopy(model)
    rounded.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_model(training: Training, folder: Path) -> PreTrainedModel:
    """Write weights, rounded to bfloat16, and tokenizer to ``folder``; return the model as loaded from there."""
    write_checkpoint(training.model, training.tokenizer, folder)
    loaded: PreTrainedModel = type(training.model).from_pretrained(folder, dtype=torch.float32)
    loaded.eval()
    return loaded


CARD = """\
---
language: en
pipeline_tag: text-generation
---
# The embedded model

A small {architecture} language model ({recipe.layers} layers, {recipe.heads} heads, {recipe.kv_heads} KV heads, width
{recipe.width}, context {recipe.context}, BPE vocabulary {recipe.vocabulary}), trained from scratch on public-domain
English, Python's own manual and Python sources, so that the embedded study measures a trained model. It is not an
assistant, and its output has no practical use.

Made by `python -m model_training --text DIR --state STATE --tokenizer extract/embedded/model` from the text of
[the manual](../manual.py), of DIR and of installed Python sources; the tokenizer is that of the previous
model. All figures below were measured by that run after the weights were rounded to bfloat16, as shipped,
on {windows} held-out windows of {recipe.context} tokens of each kind of text.

| property | goal | this model |
|---|---|---|
{properties}

| held-out text | loss, nats a token | bigram model counted on the training tokens |
|---|---|---|
{losses}

| layer | effective keys, median over heads | largest mean weight on position 0 | norm of v_0 over the median |
|---|---|---|---|
{layers}

Earlier training runs, with their results by step, are described in `docs/embedded-model.md`.

## Recipe
{different:,} different tokens; {seen:,} seen in {training.step:,} steps; {hours:.1f} hours on one core of
{machine}.

```json
{settings}
```
"""


def write_card(
    training: Training, model: PreTrainedModel, streams: dict[str, torch.Tensor], held_out: dict[str, torch.Tensor]
) -> str:
    """The text of the model card: measurements on held-out text with their goals, and the recipe."""
    recipe, measured_losses = training.recipe, measure(model, held_out)
    together = torch.cat(list(streams.values()))
    bigram = {name: compute_bigram_loss(together, ids, recipe.vocabulary) for name, ids in held_out.items()}
    losses, sink = measured_losses["loss"], measured_losses["sink_norm"]
    properties = (
        ("held-out loss of the manual, nats a token", "at most 3.4", f"{losses['manual']:.2f}"),
        ("held-out loss of English, nats a token", "at most 3.6", f"{losses['english']:.2f}"),
        (
            "(sequence, head) with more than 0.99 of the weight on one key",
            "at most 5 %",
            f"{measured_losses['saturated']:.1%}",
        ),
        (
            "effective keys of the last query, median over heads",
            "at least 5",
            f"{measured_losses['effective_keys']:.0f}",
        ),
        ("heads whose mean weight on position 0 is above 0.3", "at least 1/4", f"{measured_losses['sink_heads']:.0%}"),
        ("norm of v_0 over the median in their KV groups", "at most 0.5", "-" if math.isnan(sink) else f"{sink:.2f}"),
    )
    by_layer = zip(
        measured_losses["effective_keys_by_layer"],
        measured_losses["sink_weight_by_layer"],
        measured_losses["sink_norm_by_layer"],
        strict=True,
    )
    return CARD.format(
        architecture={"llama": "LLaMA", "qwen3": "Qwen3"}[recipe.architecture],
        recipe=recipe,
        training=training,
        windows=WINDOWS,
        properties="\n".join(f"| {name} | {goal} | {value} |" for name, goal, value in properties),
        losses="\n".join(f"| {name} | {losses[name]:.3f} | {bigram[name]:.3f} |" for name in losses),
        layers="\n".join(
            f"| {layer} | {keys:.0f} | {weight:.1%} | {norm:.2f} |"
            for layer, (keys, weight, norm) in enumerate(by_layer)
        ),
        different=len(together),
        seen=training.step * recipe.windows_per_step * recipe.context,
        hours=training.seconds / 3600,
        machine=f"{platform.machine()}, torch {torch.__version__}",
        settings=json.dumps(asdict(recipe), indent=2),
    )


FAMILY_CARD = """\
---
language: en
pipeline_tag: text-generation
---
# Checkpoints of one training run

A {architecture} language model of bytes ({recipe.layers} layers, {recipe.heads} heads, width {recipe.width},
context {recipe.context}) at {checkpoints} steps of its training, for the family `training`. It was trained from
scratch on public-domain English, Python's own manual, and random bytes of which a block is repeated, where only what
follows the first block counts in the loss. It has no practical use.

Made by `python -m model_training --recipe training --text DIR --state STATE`, in {minutes:.0f} minutes on
{machine}, and measured by that run on {windows} held-out windows of each kind of text, before the weights were rounded
to bfloat16.

| step | manual / English, nats a byte | effective keys | largest mean weight of a head on position 0, by layer |
|---|---|---|---|
{rows}

## Recipe

```json
{settings}
```
"""


def write_family_card(training: Training) -> str:
    """The text of the card of the checkpoints of a run: measurements by step, and the recipe."""
    rows = [
        f"| {mark['step']:,} | {mark['loss']['manual']:.2f} / {mark['loss']['english']:.2f} | "
        f"{mark['effective_keys']:.0f} | {', '.join(f'{weight:.2f}' for weight in mark['sink_weight_by_layer'])} |"
        for mark in training.marks
    ]
    return FAMILY_CARD.format(
        architecture={"llama": "LLaMA", "qwen3": "Qwen3"}[training.recipe.architecture],
        recipe=training.recipe,
        checkpoints=len(training.marks),
        minutes=training.seconds / 60,
        machine=f"{torch.get_num_threads()} threads of {platform.machine()}, torch {torch.__version__}",
        windows=WINDOWS,
        rows="\n".join(rows),
        settings=json.dumps(asdict(training.recipe), indent=2),
    )


def read_text(
    folder: Path, recipe: Recipe, tokenizer: PreTrainedTokenizerFast | None
) -> tuple[PreTrainedTokenizerFast, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Tokenizer, streams of training tokens by kind, and held-out windows of the manual and of English."""
    english, held = [], []
    for text in read_english(folder):
        cut = int(len(text) * (1 - recipe.held_out_english))
        english.append(text[:cut])
        held.append(text[cut:])
    texts = {
        "english": english,
        "manual": [text for _, text in list_topics("train")],
        "sources": read_sources(recipe.source_characters, recipe.seed),
    }
    tokenizer = tokenizer or train_tokenizer([text for part in texts.values() for text in part], recipe)
    streams = {name: encode(tokenizer, part) for name, part in texts.items()}
    unseen = {"manual": [text for _, text in list_topics("held_out")], "english": held}
    windows = {name: draw_windows(encode(tokenizer, part), WINDOWS, recipe, None) for name, part in unseen.items()}
    return tokenizer, streams, windows


def main() -> None:
    """Start or continue training, then write the model and its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder of public-domain English, *.txt")
    parser.add_argument("--state", type=Path, required=True, help="folder where the run is saved")
    parser.add_argument("--recipe", choices=RECIPES, default="embedded", help="which model to train")
    parser.add_argument("--out", type=Path, help="where the model is written (default: where it is shipped)")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer to use (default: train one)")
    for name, kind in (("architecture", str), ("steps", int), ("decay_steps", int), ("peak_learning_rate", float)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="overrides the recipe")
    given = vars(parser.parse_args())
    places = {name: given.pop(name) for name in ("text", "state", "out", "tokenizer")}
    name = given.pop("recipe")
    out = places["out"] or SHIPPED / ("model" if name == "embedded" else name)
    recipe = replace(RECIPES[name], **{name: value for name, value in given.items() if value is not None})
    known = PreTrainedTokenizerFast.from_pretrained(places["tokenizer"]) if places["tokenizer"] else None
    tokenizer, streams, held_out = read_text(places["text"], recipe, known)
    training = Training(recipe, places["state"], out, tokenizer)
    training.run(streams, held_out)
    card = (
        write_family_card(training)
        if recipe.checkpoints
        else write_card(training, write_model(training, out), streams, held_out)
    )
    (out / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
