"""The step of distances: how far the selected keys are from the rest, compared with random selections.

Holds means over sequences for every N, and fits against N and against the number of keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.steps.sources import Rows, Sources
from dagster_project.steps.summaries.power_laws import Row, build_fit_batch, find_head_groups, fit_row
from geometry.arrays import F64, I64
from geometry.grids import log_grid
from geometry.limits.distances import random_subset_distance
from geometry.statistics.running import Spread
from storage.warehouse.rows import build_batch
from storage.zarr.layers import list_attending_layers, read_layer

MEASURES = ("distance", "random_distance")
"""The quantities that are averaged and fitted: the distance, and its root mean square over random selections."""

AXES = {"measure": pa.string(), "axis": pa.string(), "query": pa.int32(), "n": pa.int32()}
"""Columns that say what was fitted against what, and their types."""

Points = tuple[F64, F64, NDArray[np.integer]]
"""x, y and clusters of a fit, of shapes that broadcast."""


def compute_distances(sources: Sources) -> Rows:
    """Distance of the selected keys from the rest and that of random selections, with fits against N and context.

    Layer by layer; ``estimate_distances_bytes`` are in memory in addition to the arrays of one sequence.
    """
    from tqdm import tqdm

    metrics, groups = sources.metrics, find_head_groups(sources.metrics)
    model = [_Sums.empty(metrics.sizes["sequence"], query) for query in sources.queries]
    parts: list[_Part] = []
    for layer in tqdm(list_attending_layers(metrics), desc="distances", unit="layer", disable=None):
        found = [_read(sources, layer, index, model[index]) for index in range(len(sources.queries))]
        queries = [of_query for of_query in found if of_query is not None]
        for of_query in queries:
            yield "distance_means", build_batch(_build_mean_columns(of_query, layer, metrics.sizes["sequence"]))
        fits = list(_fit_heads(queries, layer)) if queries else []
        yield "distance_fits", build_fit_batch(fits, **AXES, layer=pa.int16(), head=pa.int16())
        parts += [_Part.of(of_query, groups[layer]) for of_query in queries]
    for position, sums in zip(sources.queries, model, strict=True):
        yield "distance_means_model", build_batch(sums.build_columns(position))
    yield "distance_fits_model", build_fit_batch(list(_fit_model(parts)), **AXES)


def estimate_distances_bytes(sizes: Mapping[str, int]) -> int:
    """Upper bound of the memory of the step, in bytes, without the rows that it yields.

    For one layer these are running means of four numbers for every query, head and N, and both distances of every
    sequence on a grid of N; for the model, sums over heads for every sequence, query and N, and every head's means on
    the grid.

    Parameters
    ----------
    sizes
        Sizes of the axes ``sequence``, ``query``, ``layer``, ``head`` and ``n``.
    """
    grid = _build_grid(sizes["n"] + 1).size
    of_layer_ = sizes["query"] * sizes["head"] * 8 * (14 * 4 * sizes["n"] + 4 * sizes["sequence"] * grid)
    of_model = sizes["query"] * 8 * (5 * sizes["sequence"] * sizes["n"] + 3 * sizes["layer"] * sizes["head"] * grid)
    return of_layer_ + of_model + 2**20


@dataclass(frozen=True)
class _OfQuery:
    """Distances of one query and layer."""

    position: int
    n_keys: int
    """The most keys of any sequence."""
    grid: I64
    """N of the fits, (grid,)."""
    points: F64
    """``MEASURES`` of every sequence on the grid, (measure, sequence, head, grid)."""
    means: F64
    """Means over sequences of ``MEASURES``, and of both over ‖s_n‖, (4, head, N)."""
    errors: F64
    """Their standard errors."""


@dataclass(frozen=True)
class _Sums:
    """Sums over the heads of the model, at one query."""

    relative: F64
    """Of ``MEASURES`` over ‖s_n‖, (measure, sequence, N)."""
    heads: NDArray[np.int64]
    """How many heads these are sums of, (sequence, N)."""

    @classmethod
    def empty(cls, sequences: int, last: int) -> "_Sums":
        """Sums over no head yet, for N up to ``last``."""
        return cls(np.zeros((len(MEASURES), sequences, last)), np.zeros((sequences, last), np.int64))

    def build_columns(self, position: int) -> dict[str, Any]:
        """Columns of ``distance_means_model``; rows for the N at which there are heads."""
        most = self.heads.max(axis=0)
        seen = most > 0
        heads = self.heads[:, seen]
        relative = np.divide(self.relative[..., seen], heads, out=np.full((2, *heads.shape), np.nan), where=heads > 0)
        spread = Spread()
        for sequence in range(heads.shape[0]):
            spread.add(relative[:, sequence])
        n = np.flatnonzero(seen).astype(np.int32) + 1
        return {
            "query": np.full(n.size, position, np.int32),
            "n": n,
            "heads": most[seen].astype(np.int32),
            "sequences": np.full(n.size, heads.shape[0], np.int32),
            **dict(zip((f"relative_{name}" for name in MEASURES), spread.value(), strict=True)),
            "relative_distance_se": spread.standard_error()[0],
        }


@dataclass(frozen=True)
class _Part:
    """Means over sequences of the heads of one layer and query, for the fits of the model."""

    position: int
    n_keys: int
    grid: I64
    relative: F64
    """``MEASURES`` over ‖s_n‖, (measure, head, grid)."""
    groups: NDArray[np.int64]
    """KV group of each head."""

    @classmethod
    def of(cls, found: _OfQuery, groups: NDArray[np.int64]) -> "_Part":
        """The part of one layer and query."""
        return cls(found.position, found.n_keys, found.grid, found.means[2:, :, found.grid - 1], groups)


def _read(sources: Sources, layer: int, index: int, model: _Sums) -> _OfQuery | None:
    """The distances of one layer and query, whose heads are added to ``model``; None if no N is below the keys."""
    metrics = sources.metrics
    n_keys = read_layer(metrics, "n_keys", layer, query=index)
    last = int(n_keys.max()) - 1
    if last < 1:
        return None
    grid, spread, points = _build_grid(last + 1), Spread(), []
    for sequence, keys in enumerate(n_keys.tolist()):
        of_head = {"sequence": sequence, "query": index}
        distance = read_layer(metrics, "distance_rest", layer, **of_head)[:, :last].astype(np.float64)
        output, contributions = (
            read_layer(metrics, name, layer, **of_head)[:, None] for name in ("norm_output", "norm_contributions")
        )
        random = random_subset_distance(output, contributions, size=np.arange(1, last + 1), n_keys=keys)
        both = np.stack([distance, random])
        relative = both / np.where(output > 0, output, np.nan)
        spread.add(np.concatenate([both, relative]))
        points.append(both[..., grid - 1])
        model.relative[:, sequence, :last] += np.nan_to_num(relative).sum(axis=1)
        model.heads[sequence, :last] += (~np.isnan(relative[0])).sum(axis=0)
    return _OfQuery(
        sources.queries[index], last + 1, grid, np.stack(points, axis=1), spread.value(), spread.standard_error()
    )


def _build_mean_columns(found: _OfQuery, layer: int, sequences: int) -> dict[str, Any]:
    """Columns of ``distance_means`` of one layer and query."""
    head, n = (axis.ravel() for axis in np.indices(found.means.shape[1:], dtype=np.int32))
    names = (*MEASURES, *(f"relative_{name}" for name in MEASURES))
    return {
        "query": np.full(n.size, found.position, np.int32),
        "layer": np.full(n.size, layer, np.int16),
        "head": head.astype(np.int16),
        "n": n + 1,
        "sequences": np.full(n.size, sequences, np.int32),
        **{name: mean.ravel() for name, mean in zip(names, found.means, strict=True)},
        "distance_se": found.errors[0].ravel(),
        "relative_distance_se": found.errors[2].ravel(),
    }


def _build_grid(n_keys: int) -> I64:
    """The N of fits for so many keys: a log grid, and the powers of two, which contexts of other sizes have as well."""
    return np.union1d(log_grid(n_keys), _list_powers(n_keys))


def _list_powers(n_keys: int) -> I64:
    """The powers of two up to half of the keys; 1 for fewer than four keys."""
    return 2 ** np.arange(max(1, (n_keys // 2).bit_length()), dtype=np.int64)


def _select_up_to_half(found: _OfQuery | _Part) -> NDArray[np.bool_]:
    """Which N are fitted: beyond half of the keys the distance of every head grows again, up to ‖s_n‖ at N = n."""
    return found.grid <= max(1, found.n_keys // 2)


def _fit_heads(queries: Sequence[_OfQuery], layer: int) -> Iterator[Row]:
    """Rows of ``distance_fits`` of one layer; points and clusters are the sequences."""
    _, sequences, heads, _ = queries[0].points.shape
    cluster = np.arange(sequences)
    for head in range(heads):
        place = {"layer": layer, "head": head}
        for index, measure in enumerate(MEASURES):
            for found in queries:
                half = _select_up_to_half(found)
                y = found.points[index, :, head, half]  # (N, sequence)
                yield place | _build_row(
                    measure, "n", found.position, (found.grid[half, None].astype(np.float64), y, cluster)
                )
            for n in _find_common_n(queries):
                y = np.stack(
                    [found.points[index, :, head, _find_place(found, n)] for found in queries]
                )  # (query, sequence)
                keys = np.array([[found.n_keys] for found in queries], np.float64)
                yield place | _build_row(measure, "n_keys", n, (keys, y, cluster))


def _fit_model(parts: Sequence[_Part]) -> Iterator[Row]:
    """Rows of ``distance_fits_model``; points are the heads, clusters their KV groups."""
    queries = sorted({part.position for part in parts})  # none if no query attends to two keys
    widest = [
        max((part for part in parts if part.position == query), key=lambda part: part.n_keys) for query in queries
    ]
    for index, measure in enumerate(MEASURES):
        for query in queries:
            of_query = [part for part in parts if part.position == query]
            points = [
                (part.grid[half].astype(np.float64), part.relative[index][:, half], part.groups[:, None])
                for part in of_query
                for half in [_select_up_to_half(part)]
            ]
            yield _build_row(measure, "n", query, _join_points(points))
        for n in _find_common_n(widest):
            points = [
                (np.array(part.n_keys, np.float64), part.relative[index][:, _find_place(part, n)], part.groups)
                for part in parts
                if 2 * n <= part.n_keys
            ]
            yield _build_row(measure, "n_keys", n, _join_points(points))


def _find_common_n(queries: Sequence[_OfQuery] | Sequence[_Part]) -> list[int]:
    """The N that are fitted against the number of keys: those of all sizes of context; none if there is one size."""
    sizes = {found.n_keys for found in queries}
    if len(sizes) < 2:
        return []
    return [n for n in _list_powers(min(sizes)).tolist() if 2 * n <= min(sizes)]


def _find_place(found: _OfQuery | _Part, n: int) -> int:
    """Index of an N on the grid."""
    return int(np.searchsorted(found.grid, n))


def _build_row(measure: str, axis: str, at: int, points: Points) -> Row:
    """A row of fits without its head; ``at`` is the query of a fit against N, and the N of one against the keys."""
    return {
        "measure": measure,
        "axis": axis,
        "query": at if axis == "n" else None,
        "n": at if axis != "n" else None,
    } | (fit_row(*points))


def _join_points(parts: Iterable[Points]) -> Points:
    """Concatenate all points, flattened."""
    flat = [[array.ravel() for array in np.broadcast_arrays(*part)] for part in parts]
    x, y, cluster = (np.concatenate(arrays) for arrays in zip(*flat, strict=True))
    return x, y, cluster
