"""The step of separability and chance: measures of every head compared with those of two nulls, and curves of some.

Holds the computation of their rows, query by query and layer by layer. Measures and nulls are computed by
``geometry.separation.chance``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.cluster import limit_threads, run_in_parallel, select_scheduler
from dagster_project.analysis.devices import CUDA_WORKERS, find_cuda_device, translate_device_errors
from dagster_project.analysis.sources import Rows, Sources
from geometry.grids import average_over_ln_n, half_octave_grid
from geometry.separation.chance import NULLS, separability, separation_curve
from geometry.separation.comparisons import MEASURES
from geometry.statistics.intervals import DIFFERENCE, estimate_mean
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import BLOCK_BYTES, count_keys, list_attending_layers, read_layer, split_sequences

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

RANKED_AT = 4  # N at which heads are ranked by AUC, to choose those whose curves are shown
CURVES_AT = (4, 16, 64)  # N of these curves, as far as they are below the keys of the head
CURVE_POINTS = 200  # Largest number of points of a curve
Place = tuple[int, int]  # Layer and head


@dataclass(frozen=True)
class Sample:
    """The part of a study that is compared with chance, and the settings."""

    tensors: "SequenceStore"
    queries: tuple[int, ...]  # Position of each query
    first_key: NDArray[np.int32]  # Position of the first key, (sequence, query, layer)
    sequences: int  # Number of sequences, the first ones of the study
    draws: int
    seed: int
    grid: NDArray[np.int64]  # N, the same for all queries and heads, as far as they are below their keys
    device: str | None  # Where blocks are computed: None for the CPU, or a CUDA device


@dataclass(frozen=True)
class Layer:
    """The measures of one query in one layer."""

    heads: dict[str, NDArray[np.float64]]
    """Each head compared with the nulls, (head, null, measure, N) each, N as far as the layer's keys go."""
    over_heads: NDArray[np.float64]  # Sums over heads, (sequence, 1 + nulls, measure, N), the selections first
    auc: NDArray[np.float64]
    """Mean AUC of the selections over ln N, N from 2 on, (sequence, head); NaN if there is no such N."""


def compute_separability(sources: Sources) -> Rows:
    """Precision, Recall, F, specificity and AUC of every head, random selections and shuffled value states.

    They are those of the first sequences of the study, on a log grid of N, with intervals; and curves over all radii
    for a few heads. Yields nothing if the study draws no nulls. Queries are computed one after the other, with one task
    per layer; the measures of all layers are in memory.
    """
    if not sources.study.analysis.nulls.draws:
        return
    layers, sample = list_attending_layers(sources.tensors), _make_sample(sources)
    ranks: dict[Place, float] = {}
    for index, query in enumerate(sources.queries):
        with translate_device_errors(sources.name, sample.device):
            measured_layers = run_in_parallel(
                (partial(measure_layer, sample, index, layer) for layer in layers),
                reads=(sample.tensors.path,),
                threads=CUDA_WORKERS if sample.device else limit_threads(query + 1),
            )
        by_layer = dict(zip(layers, measured_layers, strict=True))
        constant = {"query": query, "sequences": sample.sequences, "draws": sample.draws}
        for layer, measured in by_layer.items():
            yield "separability", build_batch(_build_columns(sample, "head", measured.heads, layer=layer, **constant))
            if measured.over_heads.shape[-1]:  # a head of one key selects nothing
                rows = index_columns(measured.auc.shape, "sequence", "head", query=query, layer=layer)
                yield "head_auc", build_batch(rows | {"auc": measured.auc.ravel()})
        means, heads = _average_heads(sample, by_layer)
        value, null_value = np.broadcast_arrays(means[:, :1], means[:, 1:])
        by_sequence = _build_columns(sample, "sequence", {"value": value, "null_value": null_value}, query=query)
        yield "separability_by_sequence", build_batch(by_sequence)
        of_model = _build_columns(sample, "head", _compare(means), **constant)
        of_model["heads"] = np.broadcast_to(heads, (len(NULLS), len(MEASURES), heads.size)).ravel()
        yield "separability_model", build_batch(of_model)
        if query == sources.query:
            ranks = _extract_head_auc(sample, by_layer)
    for place, rank in choose_heads(ranks).items():
        yield from (("separation_curves", batch) for batch in _compute_curves(sample, place, rank))


def _make_sample(sources: Sources) -> Sample:
    """The sample of a study that is measured."""
    study, tensors = sources.study, sources.tensors
    return Sample(
        tensors=tensors,
        queries=sources.queries,
        first_key=tensors.read("first_key", slice(None)),
        sequences=min(study.analysis.nulls.sequences, tensors.sizes["sequence"]),
        draws=study.analysis.nulls.draws,
        seed=study.seed,
        grid=half_octave_grid(max(int(count_keys(tensors).max()), 2)),
        device=find_cuda_device(tensors.provenance) if select_scheduler(study) == "threads" else None,
    )


def measure_layer(sample: Sample, index: int, layer: int) -> Layer:
    """Measure the heads of one layer at one query, by its index; ``BLOCK_BYTES`` of its tensors are in memory."""
    query, size = sample.queries[index], sample.tensors.layers[layer]
    n = sample.grid[sample.grid < query + 1 - int(sample.first_key[: sample.sequences, index, layer].max())]
    of_one = 4 * (query + 1) * (size.heads + size.kv_heads * size.head_dim)
    blocks = split_sequences(sample.sequences, of_one, BLOCK_BYTES)
    measures = np.concatenate([_measure_block(sample, index, layer, n, block) for block in blocks])
    auc = average_over_ln_n(measures[:, :, 0, MEASURES.index("auc")], n)
    return Layer(_compare(measures), measures.sum(axis=1, dtype=np.float64), auc)


def _measure_block(sample: Sample, index: int, layer: int, n: NDArray[np.int64], block: slice) -> NDArray[np.float32]:
    """Measures of the selections of a layer in some sequences and of each null, (sequence, head, 1 + nulls, …)."""
    keys = slice(sample.queries[index] + 1)
    weights = read_layer(sample.tensors, "attention", layer, sequence=block, query=index, key=keys)
    values = read_layer(sample.tensors, "values", layer, sequence=block, key=keys)
    measures = np.empty((*weights.shape[:2], 1 + len(NULLS), len(MEASURES), n.size), np.float32)
    for at, sequence in enumerate(range(block.start, block.stop) if n.size else ()):
        first = int(sample.first_key[sequence, index, layer])
        heads = np.arange(weights.shape[1]).reshape(values.shape[1], -1)
        words = np.broadcast_arrays(sample.seed, sequence, sample.queries[index], layer, heads)
        seen = separability(
            weights[at, :, first:].reshape(*heads.shape, -1),
            values[at, :, None, first:],
            n,
            draws=sample.draws,
            seed=np.stack(words, axis=-1),
            sink=first == 0,
            device=sample.device,
        )
        for of, name in enumerate(("observed", *NULLS)):
            measures[at, :, of] = getattr(seen, name).reshape(heads.size, len(MEASURES), n.size)
    return measures


def _compare(measures: NDArray[np.floating]) -> dict[str, NDArray[np.float64]]:
    """Columns of measures by sequence, (sequence, …, 1 + nulls, measure, N), the selections first, beside the nulls.

    Means over sequences; of a null, each sequence enters with the mean over its draws.
    """
    selections, nulls = measures[..., :1, :, :], measures[..., 1:, :, :]
    null_value = nulls.mean(axis=0, dtype=np.float64)
    value = np.broadcast_to(selections.mean(axis=0, dtype=np.float64), null_value.shape)
    apart = estimate_mean(np.subtract(selections, nulls, dtype=np.float64), DIFFERENCE)
    return {"value": value, "null_value": null_value, **apart.name_ends("difference")}


def _average_heads(sample: Sample, layers: Mapping[int, Layer]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Means over all heads of every sequence, (sequence, 1 + nulls, measure, N), and their number, (N,)."""
    longest = max((layer.over_heads for layer in layers.values()), key=lambda sums: sums.shape[-1])
    total, heads = np.zeros(longest.shape), np.zeros(longest.shape[-1], np.int32)
    for number, layer in layers.items():
        reach = layer.over_heads.shape[-1]
        total[..., :reach] += layer.over_heads
        heads[:reach] += sample.tensors.layers[number].heads
    return total / heads, heads


def _build_columns(
    sample: Sample, axis: str, arrays: Mapping[str, NDArray[np.float64]], **constant: int
) -> dict[str, Any]:
    """Columns of one query, (…, null, measure, N) each, with an axis before these or, of the model, without."""
    *first, null, measure, n = (index.ravel() for index in np.indices(arrays["value"].shape, dtype=np.int16))
    return {
        **fill_columns(n.size, **constant),
        **dict(zip([axis], first, strict=False)),
        "n": sample.grid.astype(np.int32)[n],
        "null_model": _encode_names(null, NULLS),
        "measure": _encode_names(measure, MEASURES),
        **{name: array.ravel() for name, array in arrays.items()},
    }


def _encode_names(index: NDArray[np.int16], names: tuple[str, ...]) -> pa.Array:
    """A dictionary-encoded column of names."""
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int8)), pa.array(names))


def _extract_head_auc(sample: Sample, layers: Mapping[int, Layer]) -> dict[Place, float]:
    """Mean AUC of every head at ``RANKED_AT``, or the largest N below."""
    auc_of_head: dict[Place, float] = {}
    for layer, measured in layers.items():
        auc = measured.heads["value"][:, 0, MEASURES.index("auc")]
        at = np.flatnonzero(sample.grid[: auc.shape[-1]] <= RANKED_AT)
        if at.size:
            auc_of_head |= {(layer, head): value for head, value in enumerate(auc[:, at[-1]].tolist())}
    return auc_of_head


def choose_heads(auc: Mapping[Place, float]) -> dict[Place, str]:
    """The heads of highest, lowest and median AUC, each with its rank in words; of two heads, neither is the median."""
    order = sorted(auc, key=lambda place: (auc[place], place))
    return {order[(len(order) - 1) // 2]: "median", order[0]: "lowest", order[-1]: "highest"} if order else {}


def _compute_curves(sample: Sample, place: Place, rank: str) -> Iterator[pa.RecordBatch]:
    """The rows of ``separation_curves`` of one head: the last query of sequence 0."""
    (layer, head), query, tensors = place, sample.queries[-1], sample.tensors
    size, index = tensors.layers[layer], len(sample.queries) - 1
    keys = slice(int(sample.first_key[0, index, layer]), query + 1)
    weights = read_layer(tensors, "attention", layer, sequence=0, query=index, head=head, key=keys)
    states = read_layer(tensors, "values", layer, sequence=0, kv_head=head // (size.heads // size.kv_heads), key=keys)
    for n in (n for n in CURVES_AT if n < len(weights)):
        curve = vars(separation_curve(weights, states, n))
        auc, points = curve.pop("auc"), select_points(curve["recall"])
        columns = {"point": points, "auc": np.full(points.size, auc)}
        columns |= {name: array[points] for name, array in curve.items()}
        where = {"sequence": 0, "query": query, "layer": layer, "head": head, "n": n, "n_keys": len(weights)}
        yield build_batch(fill_columns(points.size, **where) | columns, auc_rank=rank)


def select_points(recall: NDArray[np.float64], most: int = CURVE_POINTS) -> NDArray[np.int32]:
    """Which points of a curve are kept, ascending: its ends, both sides of every rise of Recall, and some between.

    Thus Recall as a function of the share of false positives is unchanged, if the number of rises is at most half of
    ``most``; if there are more, evenly spaced ones of these points are kept.
    """
    last = len(recall) - 1
    rises = np.flatnonzero(np.diff(recall, prepend=0) > 0)
    sides = np.union1d(np.union1d(rises, np.maximum(rises - 1, 0)), [0, last])
    between = np.linspace(0, last, max(2, most - len(sides))).astype(np.int32)
    wanted = np.union1d(sides, between)
    spaced = np.linspace(0, len(wanted) - 1, min(most, len(wanted))).astype(np.int32)
    return wanted[spaced].astype(np.int32)
