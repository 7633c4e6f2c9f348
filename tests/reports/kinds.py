"""Made-up heads of the three kinds of the taxonomy, as three vectors that grow into s_N, and keys that share the rest.

Holds what ``tests.reports.synthetic`` takes the geometry of selections from. What does not belong here: rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geometry.grids import quantile_over_ln_n

F64 = NDArray[np.float64]

KINDS = ("Retriever", "Reset", "Mixer")
"""In the order in which the paper finds them with depth."""

_LENGTHS = np.array([[0.3, 0.9, 0.45], [1.2, 0.45, 0.8], [0.5, 0.75, 1.1]])
"""Norms of what the sink, the last token and the rest contribute, by kind."""
_TOTALS = np.array([1.3, 6, 2])
"""Sum of the norms of the rest, over the norm of their sum."""
_COSINES = np.array([[0.75, 0.6, 0.8], [0.05, 0.1, 0.15], [0.1, -0.1, 0.6]])
"""Between sink and last token, sink and rest, last token and rest."""
_LAST_COMES = np.array([0, 0.6, 0.02])
"""Share of the other keys that are selected before the last token."""


@dataclass(frozen=True)
class Heads:
    """What heads contribute, each array (sequence, query, layer, head)."""

    sink: F64
    """Norm of the sink's weighted value state; NaN where a window hides it."""
    last: F64
    rest: F64
    total_rest: F64
    cos_sink_last: F64
    cos_sink_rest: F64
    cos_last_rest: F64
    last_comes: F64


def kinds(queries: int, layers: int, heads: int) -> NDArray[np.int64]:
    """Kind of each head, (query, layer, head), as an index of ``KINDS``: by depth, with exceptions and changes."""
    query, layer, head = np.indices((queries, layers, heads))
    earlier = queries - 1 - query
    changes = (earlier > 0) & ((head + 2 * layer + earlier) % 5 == 0)
    kind: NDArray[np.int64] = (3 * layer // layers + (head % 4 == 3) + changes) % 3
    return kind


def draw(
    kind: NDArray[np.int64], n_keys: NDArray[np.int64], seen: NDArray[np.bool_], sequences: int, seed: int
) -> Heads:
    """Heads after the manner of their kinds, which differ from each other more than from sequence to sequence.

    Parameters
    ----------
    kind
        (query, layer, head).
    n_keys, seen
        Keys of each query and whether the sink is one of them, (query, layer).
    sequences, seed
        How many sequences, and what draws them.
    """
    rng = np.random.default_rng([seed, 2])
    shape = (sequences, *kind.shape)

    def about(table: F64, spread: float) -> F64:
        """Table's entries of each head plus noise of the head and of the sequence."""
        noise = rng.normal(0, spread, (1, *kind.shape)) + rng.normal(0, spread, shape)
        found: F64 = table[kind] + noise
        return found

    others = (n_keys - 1 - seen)[..., None]
    sink, last, rest = (np.exp(about(np.log(column), 0.3)) for column in _LENGTHS.T)
    last = np.minimum(last, 1)
    rest = np.minimum(rest, np.sqrt(np.maximum(others, 0)) / 2)
    sink = np.where((n_keys == 1)[..., None], last, sink)  # the sink itself is the last token, or is hidden
    cosines = [np.clip(about(column, 0.2), -0.9, 0.95) for column in _COSINES.T]
    return Heads(
        sink=np.where(seen[..., None], sink, np.nan),
        last=last,
        rest=rest,
        total_rest=rest * np.where(others > 1, np.maximum(1, about(_TOTALS, 0.2)), 1),
        cos_sink_last=cosines[0],
        cos_sink_rest=cosines[1],
        cos_last_rest=_possible(*cosines),
        last_comes=np.broadcast_to(_LAST_COMES[kind], shape),
    )


def _possible(cos_sink_last: F64, cos_sink_rest: F64, cos_last_rest: F64) -> F64:
    """The third cosine, moved as little as it takes for three vectors to have all three."""
    middle = cos_sink_last * cos_sink_rest
    reach = np.sqrt((1 - cos_sink_last**2) * (1 - cos_sink_rest**2))
    return np.clip(cos_last_rest, middle - reach, middle + reach)


def length(heads: Heads, sink: F64, last: F64, rest: F64) -> F64:
    """Norm of the sum of three vectors of these lengths, (sequence, query, layer, head, n)."""
    sink_last, sink_rest, last_rest = (
        cosine[..., None] for cosine in (heads.cos_sink_last, heads.cos_sink_rest, heads.cos_last_rest)
    )
    crossed = sink * last * sink_last + sink * rest * sink_rest + last * rest * last_rest
    norm: F64 = np.sqrt(np.maximum(sink**2 + last**2 + rest**2 + 2 * crossed, 0))
    return norm


def outputs(heads: Heads, n_keys: NDArray[np.int64]) -> dict[str, F64]:
    """Norms of the output, as a whole and without a part, named as in ``attention_rows``; ``n_keys`` (query, layer)."""
    seen, several = np.isfinite(heads.sink), (n_keys > 1)[..., None]
    sink, last = np.where(seen & several, heads.sink, 0), heads.last
    parts = (sink[..., None], last[..., None], heads.rest[..., None])
    without_sink, without_last = (
        (parts[0] * 0, parts[1] * several[..., None], parts[2]),
        (parts[0], parts[1] * 0, parts[2]),
    )
    contributions = _contributions(heads, n_keys)
    return {
        "norm_output": length(heads, *parts)[..., 0],
        "norm_output_without_sink": np.where(seen, length(heads, *without_sink)[..., 0], np.nan),
        "norm_output_without_last": length(heads, *without_last)[..., 0],
        "norm_contributions": np.sqrt((contributions**2).sum(-1)),
    }


def _contributions(heads: Heads, n_keys: NDArray[np.int64]) -> F64:
    """Weighted norms of the keys of each head: sink first, last token last, all others alike, then nothing."""
    seen = np.isfinite(heads.sink)[..., None]
    key, keys = np.arange(n_keys.max()), n_keys[..., None, None]
    other = heads.total_rest[..., None] / np.maximum(keys - 1 - seen, 1)
    found = np.where(key < keys, other, 0.0)
    found = np.where(seen & (key == 0), np.where(seen, heads.sink[..., None], 0), found)
    contributions: F64 = np.where(key == keys - 1, heads.last[..., None], found)
    return contributions


def concentration(heads: Heads, n_keys: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    """How weights, as if value states had a norm of 1 and the sink's of 1/5, and contributions are spread.

    Each array is (sequence, query, layer, head), named as in ``concentration``, top keys as indices.
    """
    seen = np.isfinite(heads.sink)[..., None]
    a = _contributions(heads, n_keys)
    weights = a * np.where(seen & (np.arange(a.shape[-1]) == 0) & (n_keys > 1)[..., None, None], 5, 1)
    found: dict[str, NDArray[np.generic]] = {}
    for names, mass in ((("keys", "top_weight", "top_key", "n"), weights), (_OF_CONTRIBUTORS, a)):
        what, top, key, fewest = names
        share = mass / mass.sum(-1, keepdims=True)
        found[f"entropy_{what}"] = -(share * np.log(np.where(share > 0, share, 1))).sum(-1)
        found[f"effective_{what}"] = np.exp(found[f"entropy_{what}"])
        found[top], found[key] = share.max(-1), share.argmax(-1)
        held = (-np.sort(-share, axis=-1)).cumsum(-1)
        for percent in (50, 90, 99):
            found[f"{fewest}_{percent}"] = 1 + (held < percent / 100 - 1e-12).sum(-1)
    uniform = 1 / n_keys[..., None]
    least = np.where(np.arange(a.shape[-1]) < n_keys[..., None, None], weights, np.inf).min(-1) / weights.sum(-1)
    found["largest_deviation"] = np.maximum(found["top_weight"] - uniform, uniform - least)
    return found


_OF_CONTRIBUTORS = ("contributors", "top_contribution", "top_contributor", "contributors")


def low_quantiles(cosines: F64, n: NDArray[np.int32], n_keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """``cos_last_p05`` of cosines (sequence, query, layer, head, n); ``n_keys`` is (query, layer)."""
    found = np.full(cosines.shape[:-1], np.nan, np.float32)
    for query, layer in np.ndindex(n_keys.shape):
        seen = cosines[:, query, layer][..., n < n_keys[query, layer]]
        found[:, query, layer] = quantile_over_ln_n(seen.astype(np.float32), 0.05)
    return found


def geometry(heads: Heads, n: NDArray[np.int32], n_keys: NDArray[np.int64]) -> dict[str, F64]:
    """Norms and cosines of s_N, each (sequence, query, layer, head, n), named as in ``selection_counts``.

    The sink is selected first, the last token in its turn, the others in between; their sum grows with the root of
    their number. ``n`` is (n,), ``n_keys`` (query, layer).
    """
    seen = np.isfinite(heads.sink)[..., None]
    others = np.maximum((n_keys[..., None, None] - 1 - seen), 1)
    turn = seen + 1 + np.rint(heads.last_comes[..., None] * others)
    has_last = n >= turn
    sink = np.where(seen, heads.sink[..., None], 0)
    last = heads.last[..., None] * has_last
    rest = heads.rest[..., None] * np.sqrt(np.clip((n - seen - has_last) / others, 0, 1))
    sink_last, sink_rest, last_rest = (
        cosine[..., None] for cosine in (heads.cos_sink_last, heads.cos_sink_rest, heads.cos_last_rest)
    )

    norm = length(heads, sink, last, rest)
    with np.errstate(invalid="ignore"):
        cos_sink = np.clip((sink + last * sink_last + rest * sink_rest) / norm, -1, 1)
        cos_last = np.clip((sink * sink_last + last + rest * last_rest) / norm, -1, 1)
    return {
        "norm_s": norm,
        "norm_s_without_sink": np.where(seen, length(heads, np.zeros_like(sink), last, rest), np.nan),
        "norm_s_without_last": length(heads, sink, np.zeros_like(last), rest),
        "distance_rest": norm,
        "cos_sink": np.where(seen, cos_sink, np.nan),
        "cos_last": cos_last,
    }
