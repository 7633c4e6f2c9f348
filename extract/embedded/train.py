"""Training of the embedded model: tokenizer, weights and model card, from plain text.

Holds everything needed to make ``extract/embedded/model`` again: the data mixture, the tokenizer, the training
loop and the measurement of the figures in the model card. What belongs elsewhere: loading the finished model
(``extract.models``) and the corpus the embedded study reads (``extract.embedded.manual``).

Run it as ``python -m extract.embedded.train --text DIR``, where ``DIR`` holds public-domain English ``*.txt`` files.
"""

import argparse
import json
import math
import random
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from extract.embedded.manual import topics

BOS, EOS = "<s>", "</s>"


@dataclass(frozen=True)
class Recipe:
    """Every choice that decides the trained weights; ``seed`` drives data order and initialisation."""

    seed: int = 20260
    vocabulary: int = 4096
    context: int = 512
    windows_per_step: int = 8
    steps: int = 5000
    warmup: int = 200
    peak_learning_rate: float = 4e-3
    final_learning_rate: float = 1e-4
    weight_decay: float = 0.1
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    width: int = 256
    mlp: int = 704
    source_characters: int = 70_000_000
    share_english: float = 0.30
    share_manual: float = 0.08
    held_out_english: float = 0.02


def english_documents(folder: Path) -> list[str]:
    """The ``*.txt`` files of ``folder``, each as one document."""
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.txt"))]


def source_documents(characters: int, seed: int) -> list[str]:
    """Python sources, about ``characters`` in all: the whole standard library, then installed packages at random.

    The manual itself, tests and very large files are left out.
    """
    folders = sysconfig.get_paths()
    library = [path for path in _sources(Path(folders["stdlib"])) if "site-packages" not in path.parts]
    packages = _sources(Path(folders["purelib"]))
    random.Random(seed).shuffle(packages)
    texts, total = [], 0
    for path in [*library, *packages]:
        if total >= characters:
            break
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        total += len(texts[-1])
    return texts


def _sources(root: Path) -> list[Path]:
    """The Python files under ``root`` worth reading, in order of their names."""
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if "pydoc_data" not in path.parts and "/test" not in path.as_posix() and path.stat().st_size <= 400_000
    ]


def train_tokenizer(texts: list[str], recipe: Recipe) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that puts BOS before every text."""
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
    eos = tokenizer.eos_token_id
    pieces = [
        np.array([*encoding.ids, eos], dtype=np.int64)
        for encoding in tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
    return torch.from_numpy(np.concatenate(pieces))


def build_model(recipe: Recipe) -> LlamaForCausalLM:
    """The untrained model."""
    config = LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        intermediate_size=recipe.mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def windows(stream: torch.Tensor, count: int, recipe: Recipe, generator: torch.Generator | None) -> torch.Tensor:
    """``count`` windows (count, context) that start with BOS: at random places, or evenly spaced without generator."""
    body = recipe.context - 1
    last = len(stream) - body
    if generator is None:
        starts = torch.linspace(0, last - 1, count).long()
    else:
        starts = torch.randint(0, last, (count,), generator=generator)
    rows = stream[starts[:, None] + torch.arange(body)]
    return torch.cat([torch.zeros(count, 1, dtype=torch.int64), rows], dim=1)


def batch(streams: dict[str, torch.Tensor], recipe: Recipe, generator: torch.Generator) -> torch.Tensor:
    """One training batch (windows_per_step, context), drawn from the three kinds of text by their shares."""
    shares = [recipe.share_english, recipe.share_manual, 1 - recipe.share_english - recipe.share_manual]
    kinds = torch.multinomial(torch.tensor(shares), recipe.windows_per_step, replacement=True, generator=generator)
    names = list(streams)
    return torch.cat([windows(streams[names[kind]], 1, recipe, generator) for kind in kinds.tolist()])


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine from the peak to the final learning rate."""
    if step < recipe.warmup:
        return recipe.peak_learning_rate * (step + 1) / recipe.warmup
    phase = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    swing = (1 + math.cos(math.pi * phase)) / 2
    return recipe.final_learning_rate + (recipe.peak_learning_rate - recipe.final_learning_rate) * swing


def token_losses(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats a token over every next-token prediction of ``ids`` (windows, context)."""
    logits = model(input_ids=ids).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


@torch.inference_mode()
def held_out_loss(model: LlamaForCausalLM, ids: torch.Tensor) -> float:
    """Mean held-out loss in nats a token, four windows at a time."""
    losses = [token_losses(model, part).item() * len(part) for part in torch.split(ids, 4)]
    return sum(losses) / len(ids)


def bigram_loss(train: torch.Tensor, ids: torch.Tensor, vocabulary: int, strength: float = 4.0) -> float:
    """Held-out loss in nats a token of a bigram model, interpolated with the unigram model, counted on ``train``."""
    pairs = train[:-1] * vocabulary + train[1:]
    counts = torch.bincount(pairs, minlength=vocabulary**2).reshape(vocabulary, vocabulary)
    unigram = (torch.bincount(train, minlength=vocabulary) + 0.5).double()
    unigram /= unigram.sum()
    before, after = ids[:, :-1].flatten(), ids[:, 1:].flatten()
    likelihood = (counts[before, after] + strength * unigram[after]) / (counts.sum(1)[before] + strength)
    return -likelihood.log().mean().item()


@torch.inference_mode()
def sink_figures(model: LlamaForCausalLM, ids: torch.Tensor) -> dict[str, list[float]]:
    """By layer: mean and largest head's share of last-query weight on position 0, and ‖v_0‖ over the median norm."""
    values: list[torch.Tensor] = []
    heads, width = model.config.num_key_value_heads, model.config.head_dim

    def keep(_module: torch.nn.Module, _arguments: object, output: torch.Tensor) -> None:
        values.append(output.unflatten(-1, (heads, width)))

    hooks = [layer.self_attn.v_proj.register_forward_hook(keep) for layer in model.model.layers]
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    attentions = model(input_ids=ids, output_attentions=True).attentions
    model.set_attn_implementation(before)
    for hook in hooks:
        hook.remove()
    shares = [weights[:, :, -1, 0].float().mean(0) for weights in attentions]
    norms = [value.float().norm(dim=-1) for value in values]  # (windows, context, kv_heads)
    return {
        "mean_share": [share.mean().item() for share in shares],
        "largest_share": [share.max().item() for share in shares],
        "sink_norm_ratio": [(norm[:, 0] / norm[:, 1:].median(dim=1).values).mean().item() for norm in norms],
    }


def train(streams: dict[str, torch.Tensor], held_out: dict[str, torch.Tensor], recipe: Recipe) -> LlamaForCausalLM:
    """Train from scratch and return the model; prints the running and the held-out loss."""
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    model = build_model(recipe)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        fused=True,
    )
    started, running = time.monotonic(), 0.0
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = token_losses(model, batch(streams, recipe, generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running = loss.item() if step == 0 else 0.98 * running + 0.02 * loss.item()
        if step % 50 == 0:
            rate = (time.monotonic() - started) / (step + 1)
            print(f"step {step} loss {running:.3f} {rate:.2f} s/step", flush=True)
        if step % 500 == 499:
            report(model, held_out)
    return model


def report(model: LlamaForCausalLM, held_out: dict[str, torch.Tensor]) -> None:
    """Print the held-out losses and the sink figures on one line."""
    losses = {name: round(held_out_loss(model, ids[:16]), 3) for name, ids in held_out.items()}
    sink = {key: [round(x, 3) for x in column] for key, column in sink_figures(model, held_out["manual"][:8]).items()}
    print("held out", losses, sink, flush=True)


def model_card(figures: dict[str, object], recipe: Recipe) -> str:
    """The model card in Markdown; every figure in it was measured by this run."""
    losses: dict[str, dict[str, float]] = figures["loss"]  # type: ignore[assignment]
    sink: dict[str, list[float]] = figures["sink"]  # type: ignore[assignment]
    uniform = 1 / recipe.context
    strongest = max(sink["largest_share"])
    verdict = (
        f"An attention sink is visible: the strongest head gives position 0 {strongest:.0%} of the last query's weight."
        if strongest > 20 * uniform
        else "No attention sink appeared: no head gives position 0 more than 20 times the uniform share."
    )
    loss_rows = "\n".join(
        f"| {name} | {row['tokens']:.0f} | {row['model']:.3f} | {row['bigram']:.3f} |" for name, row in losses.items()
    )
    sink_rows = "\n".join(
        f"| {layer} | {mean:.2%} | {largest:.2%} | {ratio:.2f} |"
        for layer, (mean, largest, ratio) in enumerate(
            zip(sink["mean_share"], sink["largest_share"], sink["sink_norm_ratio"], strict=True)
        )
    )
    return f"""---
language: en
pipeline_tag: text-generation
---
# The embedded model

A small LLaMA-architecture language model ({recipe.layers} layers, {recipe.heads} heads, {recipe.kv_heads} KV heads,
width {recipe.width}, context {recipe.context}, BPE vocabulary {recipe.vocabulary}), trained from scratch on
public-domain English, Python's own manual and Python sources, so that the embedded study measures a model that has
learnt something.
It is no assistant and writes nothing of use.

Made by `python -m extract.embedded.train --text DIR`; all figures below were measured by that run after the weights
were rounded to bfloat16, as shipped.

## Held-out loss
In nats a token, on text the model never saw, beside a bigram model counted on the same training tokens.

| text | tokens | this model | bigram |
|---|---|---|---|
{loss_rows}

## Attention sink
Mean over {figures["sink_windows"]} held-out windows of {recipe.context} tokens of the manual. A uniform share would be
{uniform:.2%}. {verdict}

| layer | weight on position 0, mean over heads | the same, strongest head | norm of v_0 over the median |
|---|---|---|---|
{sink_rows}

## Recipe
{figures["train_tokens"]:,} different tokens; {figures["tokens_seen"]:,} seen in training.

```json
{json.dumps(asdict(recipe), indent=2)}
```
"""


def main() -> None:
    """Train the tokenizer and the model and write both with their card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder of public-domain *.txt files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "model")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    arguments = parser.parse_args()
    recipe = Recipe(steps=arguments.steps)

    english, held_english = [], []
    for text in english_documents(arguments.text):
        cut = int(len(text) * (1 - recipe.held_out_english))
        english.append(text[:cut])
        held_english.append(text[cut:])
    manual = [text for _, text in topics("train")]
    sources = source_documents(recipe.source_characters, recipe.seed)
    sample = [*english, *manual * 4, *random.Random(recipe.seed).sample(sources, min(len(sources), 1500))]
    tokenizer = train_tokenizer(sample, recipe)
    streams = {
        "english": encode(tokenizer, english),
        "manual": encode(tokenizer, manual),
        "sources": encode(tokenizer, sources),
    }
    held_streams = {
        "manual": encode(tokenizer, [text for _, text in topics("held_out")]),
        "english": encode(tokenizer, held_english),
    }
    print({name: len(stream) for name, stream in (streams | {f"held {k}": v for k, v in held_streams.items()}).items()})
    held_out = {
        name: windows(stream, min(64, len(stream) // recipe.context), recipe, None)
        for name, stream in held_streams.items()
    }
    model = train(streams, held_out, recipe).bfloat16().float().eval()

    tokens = torch.cat(list(streams.values()))
    figures: dict[str, object] = {
        "loss": {
            name: {
                "tokens": float(ids[:, 1:].numel()),
                "model": held_out_loss(model, ids),
                "bigram": bigram_loss(tokens, ids, recipe.vocabulary),
            }
            for name, ids in held_out.items()
        },
        "sink": sink_figures(model, held_out["manual"][:32]),
        "sink_windows": len(held_out["manual"][:32]),
        "train_tokens": len(tokens),
        "tokens_seen": recipe.steps * recipe.windows_per_step * recipe.context,
    }
    tokenizer.save_pretrained(arguments.out)
    model.bfloat16().save_pretrained(arguments.out)
    (arguments.out / "README.md").write_text(model_card(figures, recipe), encoding="utf-8")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
