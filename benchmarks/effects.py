"""Effects of heads: ablation of every head, compared with one forward pass for each head.

Holds the benchmark ``effects.ablation``. Correctness is tested in ``tests.extract.test_ablation``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.measure import Benchmark, Result, alternate, compare
from extract.ablation import (
    REPLACEMENTS,
    Replacement,
    ResumableModel,
    ablate,
    compute_mean_of_others,
    compute_mean_outputs,
    replace,
)
from extract.capture import probe
from extract.interventions import Call, compare_losses, compute_log_probabilities, intervene
from extract.models import describe, load
from extract.settings import ExtractionSettings

TARGET = 0.6


@dataclass(frozen=True)
class ReplacedHeads:
    """Replaces z of some heads, in every sequence of the batch and for every query.

    ``sink`` replaces z only for queries that see position 0; for a query whose window hides position 0, z is unchanged.
    """

    heads: Mapping[tuple[int, int], Replacement]
    """Kind of replacement by head, each head as (layer, head)."""
    means: Mapping[int, Tensor] = field(default_factory=dict)
    """By layer, z that heads are replaced by under ``mean``, (H, Dv) or one for each sequence, (B, H, Dv)."""

    def output(self, call: Call) -> Tensor:
        """The layer's own, with the chosen heads replaced."""
        output = call.output()
        for (layer, head), kind in self.heads.items():
            if layer == call.layer:
                replace(output, call, head, kind, self.means.get(layer))
        return output


class _Heads:
    """A model, one sequence, and two ways to measure the loss when heads are replaced."""

    def __init__(self, model: PreTrainedModel, context: int) -> None:
        self.model = model
        words = model.config.get_text_config(decoder=True).vocab_size
        ids = torch.from_numpy(np.random.default_rng(0).integers(2, words, (2, context)))
        self.attention = probe(model, ids[:1, :64])
        self.resumable = ResumableModel(model, self.attention, ids[0])
        self.means = compute_mean_of_others(compute_mean_outputs(model, self.attention, ids), 0)
        self.ids = ids[0]
        self.plain = compute_log_probabilities(self.compute_logits(ReplacedHeads({})))

    def ablate_heads(self, heads: list[tuple[int, int]]) -> None:
        """Ablate as the program does, layer by layer."""
        layers = sorted({layer for layer, _ in heads})
        given = partial(ablate, kinds=REPLACEMENTS, means=self.means, layers=layers, heads=heads)
        list(given(self.resumable, self.attention, self.ids))

    def ablate_by_forward(self, heads: list[tuple[int, int]]) -> None:
        """Ablate by a forward pass for each head and kind."""
        for kind, head in product(REPLACEMENTS, heads):
            compare_losses(self.compute_logits(ReplacedHeads({head: kind}, self.means))[None], self.plain, self.ids)

    def compute_logits(self, edit: ReplacedHeads) -> Tensor:
        """Logits (K, V) of a forward pass."""
        with intervene(self.model, self.attention, edit), torch.inference_mode():
            logits: Tensor = self.model(input_ids=self.ids[None], use_cache=False).logits
        return logits[0]


def measure_ablation(*, context: int, repeats: int, heads: int | None = None) -> list[Result]:
    """All heads of the embedded model, or ``heads`` of each layer, replaced in every way over one sequence."""
    settings = {"model": "embedded", "corpus": "embedded", "context_length": context, "sequences": 1, "device": "cpu"}
    model = load(describe(ExtractionSettings.model_validate(settings)))
    both, count = _Heads(model, context), heads or model.config.num_attention_heads
    layers = len(both.attention.layers)
    chosen = list(product(range(layers), range(count)))
    seconds = alternate(
        lambda: both.ablate_heads(chosen),
        lambda: both.ablate_by_forward(chosen),
        lambda: both.resumable.run_plain(both.ids),
        repeats=repeats,
        clock=time.process_time,
    )
    sizes = {"layers": layers, "heads": count, "kinds": len(REPLACEMENTS), "context": context}
    what = ("ablation of the heads of the embedded model: losses and divergences", seconds[:, 0])
    against = ("the same by a forward pass for each head and kind", seconds[:, 1])
    bare = np.median(seconds[:, 0] / seconds[:, 2]) / (len(chosen) * len(REPLACEMENTS))
    note = f"{bare:.2f} times the same number of plain passes without losses"
    return [compare("effects.ablation", "cost", what, against, sizes=sizes, target=TARGET, note=note)]


BENCHMARKS = (
    Benchmark(
        "effects.ablation",
        full=partial(measure_ablation, context=512, repeats=5),
        small=partial(measure_ablation, context=64, repeats=2, heads=2),
    ),
)
