"""The synthetic study: tensors drawn from the paper's three assumptions instead of captured from a model.

Every parameter covers its range in equal steps, one step per head (per KV head for parameters of value states), in an
order of its own drawn from the study's seed, so that no two parameters are correlated by design. A single head gets the
first value of the range. All queries of a head have the same parameters, except that T_1 and T_2 are shares of the
number of keys of each query. The values of a sequence and the weights of each of its queries are drawn from separate
random streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extract.settings import SYNTHETIC, ExtractionSettings, SyntheticSettings
from geometry.assumptions.assumed import AssumedHead, draw_values, draw_weights
from storage.zarr.arrays import LayerSize

OF_VALUES = ("value_scale", "lambda_sink", "beta", "rho_0")
"""Parameters of value states, one value for every KV head."""

OF_WEIGHTS = ("p_sink", "eta", "eta_growth", "omega", "t_1", "t_2")
"""Parameters of weights, one value for every query head."""

PLANTED, DRAWN = 0, 1
"""Keys of the seed's random streams: for the parameters, and for the tensors."""


@dataclass(frozen=True)
class PlantedHead:
    """The parameters of one query head at one of the study's queries."""

    query: int
    """Position of the query, which has ``query`` + 1 keys."""
    layer: int
    head: int
    kv_head: int
    assumed: AssumedHead


def plant_heads(settings: ExtractionSettings) -> list[PlantedHead]:
    """Parameters of every query head, ordered by query, layer and head.

    Query heads of one KV head share the parameters of value states, and so do all queries.

    ``ValueError`` if the study is not synthetic.
    """
    part = _require_synthetic(settings)
    rng = _make_rng(settings, PLANTED)
    values = {name: _spread_range(getattr(part, name), part.layers * part.kv_heads, rng) for name in OF_VALUES}
    weights = {
        name: _spread_range(getattr(part, name) or part.eta, part.layers * part.heads, rng) for name in OF_WEIGHTS
    }
    if part.eta_growth is None:
        weights["eta_growth"] = weights["eta"]
    shares = {name: weights.pop(name) for name in ("t_1", "t_2")}
    group = part.heads // part.kv_heads
    return [
        PlantedHead(
            query,
            *divmod(index, part.heads),
            index % part.heads // group,
            AssumedHead(
                **{name: spread[index // group].item() for name, spread in values.items()},
                **{name: spread[index].item() for name, spread in weights.items()},
                **{  # positions at a share of the keys, after the sink's and not after the query's
                    name: min(max(round(share[index].item() * (query + 1)), 1), query) for name, share in shares.items()
                },
            ),
        )
        for query in settings.query_positions
        for index in range(part.layers * part.heads)
    ]


def list_layer_sizes(settings: ExtractionSettings) -> tuple[LayerSize, ...]:
    """Sizes of the layers, which are all equal."""
    part = _require_synthetic(settings)
    return (LayerSize(part.heads, part.kv_heads, part.head_dim),) * part.layers


def draw_sequence(settings: ExtractionSettings, heads: Sequence[PlantedHead], index: int) -> dict[str, NDArray[Any]]:
    """Draw the arrays of sequence ``index``, which do not depend on the sequences drawn before.

    ``heads`` is the result of ``plant_heads``. The values, and the weights of a query, do not depend on which other
    queries the study has. Tokens are the positions; no window hides a key, and no head has a learned sink. Memory: the
    arrays in float32, and those of one head in float64.
    """
    part, keys, positions = _require_synthetic(settings), settings.context_length, settings.query_positions
    values = np.empty((part.layers, part.kv_heads, keys, part.head_dim), np.float32)
    weights = np.zeros((len(positions), part.layers, part.heads, keys), np.float32)
    of_values = _make_rng(settings, DRAWN, index)
    of_weights = {query: _make_rng(settings, DRAWN, index, query) for query in positions}
    for head in heads:
        if head.query == positions[0] and head.head % (part.heads // part.kv_heads) == 0:
            values[head.layer, head.kv_head] = draw_values(head.assumed, keys, part.head_dim, of_values)
        drawn = draw_weights(head.assumed, head.query + 1, of_weights[head.query], noise=part.noise)
        weights[positions.index(head.query), head.layer, head.head, : head.query + 1] = drawn
    return {
        "attention": weights,
        "values": values,
        "learned_sink": np.zeros((len(positions), part.layers, part.heads), np.float32),
        "tokens": np.arange(keys, dtype=np.int32),
        "first_key": np.zeros((len(positions), part.layers), np.int32),
        "query_position": np.array(positions, np.int32),
        "batch": np.array(1, np.int32),
    }


def _make_rng(settings: ExtractionSettings, *key: int) -> np.random.Generator:
    """A generator of the study's seed for one purpose, independent of those with another key."""
    return np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=key))


def _require_synthetic(settings: ExtractionSettings) -> SyntheticSettings:
    if settings.synthetic is None:
        raise ValueError(f"the model '{settings.model.id}' is not '{SYNTHETIC}'")
    return settings.synthetic


def _spread_range(ends: tuple[float, float], heads: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Values of a parameter for every head: equal steps from one end to the other, in random order."""
    return rng.permutation(np.linspace(*ends, heads))
