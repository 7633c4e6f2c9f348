"""The synthetic study: tensors drawn from the paper's three assumptions instead of captured from a model.

Holds what each head is drawn from and the drawing of one sequence. What does not belong here: the distributions
themselves (``geometry.assumed``), the settings (``extract.settings``) and the store (``extract.extraction``).

Every parameter runs through its range in equal steps, one step to a head (to a KV head for those of value states), in
an order of its own drawn from the study's seed, so that no two parameters go together. Where there is one head, it has
the first of the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extract.settings import SYNTHETIC, ExtractionSettings, SyntheticSettings
from geometry.assumed import Assumed, draw_values, draw_weights

OF_VALUES = ("value_scale", "lambda_sink", "beta", "rho_0")
"""Parameters of value states, one of each for every KV head."""

OF_WEIGHTS = ("p_sink", "eta", "eta_growth", "omega", "t_1", "t_2")
"""Parameters of weights, one of each for every query head."""

INPUTS: Mapping[str, Any] = {"model": {"id": SYNTHETIC}, "corpus": {"documents_read": 0, "documents_skipped": 0}}
"""The part of the provenance on model and corpus: there is neither, the settings say all."""

PLANTED, DRAWN = 0, 1
"""Which random numbers of the seed are for what."""


@dataclass(frozen=True)
class Planted:
    """What the tensors of one query head are drawn from."""

    layer: int
    head: int
    kv_head: int
    assumed: Assumed


def planted(settings: ExtractionSettings) -> list[Planted]:
    """What every query head is drawn from, by layer and head; heads of one KV head share what concerns value states.

    Raises
    ------
    ValueError
        If the study is not synthetic.
    """
    part = _part(settings)
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(PLANTED,)))
    values = {name: _spread(getattr(part, name), part.layers * part.kv_heads, rng) for name in OF_VALUES}
    weights = {name: _spread(getattr(part, name) or part.eta, part.layers * part.heads, rng) for name in OF_WEIGHTS}
    if part.eta_growth is None:
        weights["eta_growth"] = weights["eta"]
    edges = {name: _positions(weights.pop(name), settings.context_length) for name in ("t_1", "t_2")}
    group = part.heads // part.kv_heads
    return [
        Planted(
            *divmod(index, part.heads),
            index % part.heads // group,
            Assumed(
                **{name: spread[index // group].item() for name, spread in values.items()},
                **{name: spread[index].item() for name, spread in weights.items()},
                **{name: edge[index].item() for name, edge in edges.items()},
            ),
        )
        for index in range(part.layers * part.heads)
    ]


def sizes(settings: ExtractionSettings) -> dict[str, int]:
    """Sizes of the axes of the store."""
    part = _part(settings)
    return {
        "sequence": settings.sequences,
        "layer": part.layers,
        "head": part.heads,
        "kv_head": part.kv_heads,
        "key": settings.context_length,
        "head_dim": part.head_dim,
    }


def draw_sequence(settings: ExtractionSettings, heads: Sequence[Planted], index: int) -> dict[str, NDArray[Any]]:
    """The arrays of sequence ``index``, the same whichever were drawn before it.

    ``heads`` are those that ``planted`` gives. Tokens are the positions; no window hides a key. Memory: the arrays, in
    float32, and one head's in float64.
    """
    size, noise = sizes(settings), _part(settings).noise
    keys, head_dim, group = size["key"], size["head_dim"], size["head"] // size["kv_head"]
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(DRAWN, index)))
    attention = np.empty((size["layer"], size["head"], keys), np.float32)
    values = np.empty((size["layer"], size["kv_head"], keys, head_dim), np.float32)
    for head in heads:
        if head.head % group == 0:
            values[head.layer, head.kv_head] = draw_values(head.assumed, keys, head_dim, rng)
        attention[head.layer, head.head] = draw_weights(head.assumed, keys, rng, noise=noise)
    return {
        "attention": attention,
        "values": values,
        "tokens": np.arange(keys, dtype=np.int32),
        "first_key": np.zeros(size["layer"], np.int32),
    }


def _part(settings: ExtractionSettings) -> SyntheticSettings:
    """The settings of what is drawn."""
    if settings.synthetic is None:
        msg = f"the model '{settings.model.id}' is not '{SYNTHETIC}'"
        raise ValueError(msg)
    return settings.synthetic


def _spread(ends: tuple[float, float], heads: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A parameter of every head: equal steps from one end to the other, in random order."""
    return rng.permutation(np.linspace(*ends, heads))


def _positions(shares: NDArray[np.float64], context_length: int) -> NDArray[np.int64]:
    """Positions from shares of the context."""
    return np.rint(shares * context_length).astype(np.int64).clip(1, context_length - 1)
