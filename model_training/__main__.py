"""Training of the embedded model: tokenizer, weights and measurements, from plain text.

Run it as ``python -m model_training --text DIR --state STATE``, where ``DIR`` holds public-domain English
``*.txt`` files. Every 500 steps it measures the model on held-out text and saves its state in ``STATE``; a later run
with the same ``STATE`` continues from there. With ``--recipe training`` it trains the smaller model of the
family ``training`` and also writes its checkpoints.
"""

import argparse
import json
import random
import sysconfig
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from extract.capture.one_pass import PROBE_TOKENS, capture, probe
from extract.embedded import list_topics

BOS, EOS = "<s>", "</s>"

SHIPPED = Path(__file__).parents[1] / "extract" / "embedded"
"""Where the package has its models."""

MARK = 500
"""Steps between two measurements on held-out text; the state is saved after each of them."""

WINDOWS = 32
"""Number of held-out windows of each kind of text that are used for all measurements."""


@dataclass(frozen=True)
class Recipe:
    """All choices that determine the trained weights; ``seed`` drives data order and initialisation."""

    seed: int = 20260
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


def read_sources(characters: int, seed: int) -> list[str]:
    """Python sources of about ``characters`` in total: the standard library, then installed packages in random order.

    The manual itself, tests and very large files are left out.
    """
    library, packages = (
        [
            path
            for path in sorted(Path(sysconfig.get_path(place)).rglob("*.py"))
            if "pydoc_data" not in path.parts and "/test" not in path.as_posix() and path.stat().st_size <= 400_000
        ]
        for place in ("stdlib", "purelib")
    )
    random.Random(seed).shuffle(packages)
    texts, total = [], 0
    for path in [*(path for path in library if "site-packages" not in path.parts), *packages]:
        if total >= characters:
            break
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        total += len(texts[-1])
    return texts


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
    return LlamaForCausalLM(
        LlamaConfig(
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

    Returns token ids (windows_per_step, context), and which of them can be predicted, of the same shape: all of text,
    and of repeated random tokens those after the first block.
    """
    named = [recipe.share_english, recipe.share_manual, recipe.share_repeated]
    shares = torch.tensor([*named[:2], 1 - sum(named), *([named[2]] if named[2] else [])]).clamp(min=0)
    kinds = torch.multinomial(shares, recipe.windows_per_step, replacement=True, generator=generator)
    drawn, of_text = [], list(streams.values())
    for kind in kinds.tolist():
        if kind < len(of_text):
            ids = draw_windows(of_text[kind], 1, recipe, generator)
            drawn.append((ids, torch.ones_like(ids, dtype=torch.bool)))
        else:
            drawn.append(repeat_tokens(recipe, generator))
    return torch.cat([ids for ids, _ in drawn]), torch.cat([known for _, known in drawn])


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
def measure(model: PreTrainedModel, held_out: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Measure the losses on each kind of held-out text, and the attention of the last queries of all windows.

    Returns ``loss``: by kind of text, nats a token; ``saturated``: share of (window, head) with a largest weight above
    0.99; ``effective_keys``: median over heads of the mean over windows of e^entropy; ``sink_weight``: the largest mean
    weight of a head on position 0 by layer; ``sink_norm``: ‖v_0‖ over the median norm of the others by layer.
    """
    losses = {}
    for name, ids in held_out.items():
        of_parts = [compute_token_losses(model, part).item() * len(part) for part in torch.split(ids, 4)]
        losses[name] = sum(of_parts) / len(ids)
    windows = torch.cat(list(held_out.values()))
    attention = probe(model, windows[:1, :PROBE_TOKENS])
    read = [capture(model, attention, part, [windows.shape[1] - 1]) for part in torch.split(windows, 8)]
    weights = torch.cat([part["attention"][:, :, 0] for part in read], dim=1)  # (layer, window, head, key)
    norms = torch.cat([part["values"] for part in read], dim=1).float().norm(dim=-1)  # (layer, window, kv_head, key)
    return {
        "loss": losses,
        "saturated": (weights.max(-1).values > 0.99).float().mean().item(),
        "effective_keys": torch.special.entr(weights).sum(-1).exp().mean(1).median().item(),
        "sink_weight": weights[..., 0].mean(1).max(-1).values.tolist(),
        "sink_norm": (norms[..., 0] / norms[..., 1:].median(-1).values).mean((1, 2)).tolist(),
    }


class Training:
    """A training run that is saved in the folder ``state`` and continued from there; checkpoints go below ``out``."""

    def __init__(self, recipe: Recipe, state: Path, out: Path, tokenizer: PreTrainedTokenizerFast) -> None:
        self.recipe, self.file, self.out, self.tokenizer = recipe, state / "state.pt", out, tokenizer
        torch.manual_seed(recipe.seed)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.model = build_model(recipe)
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            betas=(0.9, 0.95),
            fused=True,
        )
        self.done: dict[str, Any] = {"recipe": asdict(recipe), "step": 0, "seconds": 0.0, "marks": []}
        if self.file.exists():
            self._continue()

    def _continue(self) -> None:
        saved = torch.load(self.file, weights_only=True)
        if (recipe := saved["done"]["recipe"]) != self.done["recipe"]:
            raise SystemExit(f"{self.file} was saved with another recipe: {recipe}; use another --state")
        self.done = saved["done"]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.generator.set_state(saved["generator"])

    def _save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_suffix(".partial")
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({"done": self.done, **parts, "generator": self.generator.get_state()}, partial)
        partial.replace(self.file)

    def run(self, streams: dict[str, torch.Tensor], held_out: dict[str, torch.Tensor]) -> None:
        """Train to the last step; measure, print and save at the marks of the recipe."""
        compiled = torch.compile(self.model)
        for mark in self.recipe.marks:
            if any(done["step"] >= mark for done in self.done["marks"]):
                continue
            started = time.monotonic()
            running = [self._take_step(compiled, streams) for _ in range(mark - self.done["step"])]
            self.done["seconds"] += time.monotonic() - started
            train = {"train": float(np.mean(running[-100:]))} if running else {}
            self.done["marks"].append({"step": mark, **train, **measure(self.model, held_out)})
            print(json.dumps(self.done["marks"][-1]), flush=True)
            if self.recipe.checkpoints:
                write_checkpoint(self.model, self.tokenizer, self.out / f"step{mark}")
            self._save()

    def _take_step(self, compiled: Any, streams: dict[str, torch.Tensor]) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = compute_learning_rate(self.done["step"], self.recipe)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compute_token_losses(compiled, *draw_batch(streams, self.recipe, self.generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done["step"] += 1
        return loss.item()


def write_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights, rounded to bfloat16, and tokenizer to ``folder``; the model keeps its own."""
    rounded: Any = deepcopy(model)
    rounded.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def read_text(
    folder: Path, recipe: Recipe, tokenizer: PreTrainedTokenizerFast | None
) -> tuple[PreTrainedTokenizerFast, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Tokenizer, streams of training tokens by kind, and held-out windows of the manual and of English."""
    english, held = [], []
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
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
    """Start or continue training, then write the model, and its recipe and measurements beside the state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder of public-domain English, *.txt")
    parser.add_argument("--state", type=Path, required=True, help="folder where the run is saved")
    parser.add_argument("--recipe", choices=RECIPES, default="embedded", help="which model to train")
    parser.add_argument("--out", type=Path, help="where the model is written (default: where it is shipped)")
    parser.add_argument("--tokenizer", type=Path, help="folder of a tokenizer to use (default: train one)")
    given = parser.parse_args()
    recipe = RECIPES[given.recipe]
    out = given.out or SHIPPED / ("model" if given.recipe == "embedded" else given.recipe)
    known = PreTrainedTokenizerFast.from_pretrained(given.tokenizer) if given.tokenizer else None
    tokenizer, streams, held_out = read_text(given.text, recipe, known)
    training = Training(recipe, given.state, out, tokenizer)
    training.run(streams, held_out)
    if not recipe.checkpoints:
        write_checkpoint(training.model, tokenizer, out)
    record = {"recipe": asdict(recipe), "hours": training.done["seconds"] / 3600, "marks": training.done["marks"]}
    (given.state / "training.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
