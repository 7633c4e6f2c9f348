"""Effects of heads: ablation of every head, compared with one forward pass for each head.

Holds the benchmark ``effects.ablation``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Benchmark, Result, alternate, compare
from extract.capture.one_pass import probe
from extract.effects import ablation
from extract.effects.ablation import REPLACEMENTS, Replacement, ResumableModel, ablate
from extract.effects.interventions import Call, compare_losses, compute_log_probabilities, intervene
from extract.models.loading import describe, load
from extract.settings import ExtractionSettings


@dataclass(frozen=True)
class ReplacedHeads:
    """Replaces z of some heads, in every sequence of the batch and for every query.

    ``sink`` replaces z only for queries that see position 0; for a query whose window hides position 0, z is unchanged.
    """

    heads: Mapping[tuple[int, int], Replacement]
    """Kind of replacement by head, each head as (layer, head)."""
    means: Mapping[int, Tensor] = field(default_factory=dict)
    """By layer, z that heads are replaced by under ``mean``, (H, Dv) or one for each sequence, (B, H, Dv)."""

    def __call__(self, call: Call) -> Tensor:
        """The layer's own, with the chosen heads replaced."""
        output = call.output()
        for (layer, head), kind in self.heads.items():
            if layer == call.layer:
                ablation.replace(output, call, head, kind, self.means.get(layer))
        return output


def measure_ablation(*, context: int, repeats: int, heads: int | None = None) -> list[Result]:
    """All heads of the embedded model, or ``heads`` of each layer, replaced in every way over one sequence."""
    settings = {"model": "embedded", "corpus": "embedded", "context_length": context, "sequences": 1, "device": "cpu"}
    model = load(describe(ExtractionSettings.model_validate(settings)))
    words = model.config.get_text_config(decoder=True).vocab_size
    ids = torch.from_numpy(np.random.default_rng(0).integers(2, words, (2, context)))
    attention = probe(model, ids[:1, :64])
    resumable = ResumableModel(model, attention, ids[0])
    means = ablation.compute_mean_of_others(ablation.compute_mean_outputs(model, attention, ids), 0)
    layers, count = len(attention.layers), heads or model.config.num_attention_heads
    chosen = list(product(range(layers), range(count)))

    def compute_logits(edit: ReplacedHeads) -> Tensor:
        with intervene(model, attention, edit), torch.inference_mode():
            logits: Tensor = model(input_ids=ids[:1], use_cache=False).logits
        return logits

    plain = compute_log_probabilities(compute_logits(ReplacedHeads({}))[0])

    def ablate_by_forward() -> None:
        for kind, head in product(REPLACEMENTS, chosen):
            compare_losses(compute_logits(ReplacedHeads({head: kind}, means)), plain, ids[0])

    seconds = alternate(
        lambda: list(ablate(resumable, attention, ids[0], kinds=REPLACEMENTS, means=means, heads=chosen)),
        ablate_by_forward,
        lambda: resumable.run_plain(ids[0]),
        repeats=repeats,
        clock=time.process_time,
    )
    sizes = {"layers": layers, "heads": count, "kinds": len(REPLACEMENTS), "context": context}
    what = ("ablation of the heads of the embedded model: losses and divergences", seconds[:, 0])
    against = ("the same by a forward pass for each head and kind", seconds[:, 1])
    bare = np.median(seconds[:, 0] / seconds[:, 2]) / (len(chosen) * len(REPLACEMENTS))
    note = f"{bare:.2f} times the same number of plain passes without losses"
    return [compare("effects.ablation", "cost", what, against, sizes=sizes, target=0.6, note=note)]


BENCHMARK = Benchmark(
    "effects.ablation",
    full=partial(measure_ablation, context=512, repeats=5),
    small=partial(measure_ablation, context=64, repeats=2, heads=2),
)
