"""The rows of warehouse tables as Arrow record batches, of what is measured, of the study and of its text.

Each batch of what is measured is one query of one layer of one sequence.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sql
from geometry import quantities
from geometry.grids import list_half_octaves
from geometry.quantities import RATES, ROLES, SELECTION, TOP_KEYS, Axes
from sql.columns import CONCENTRATION, OF_ATTENTION, OF_QUERIES
from storage.warehouse.connection import FORMAT_VERSION
from storage.warehouse.relations import compute_landing_version
from storage.zarr.arrays import READ_SEQUENCES, LayerSize
from storage.zarr.layers import list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore


def _list_names(axes: Axes) -> tuple[str, ...]:
    """The measured quantities with these axes."""
    return tuple(name for name, quantity in SELECTION.items() if quantity.axes == axes)


BY_N, BY_KAPPA = (_list_names(axes) for axes in (quantities.BY_N, quantities.BY_KAPPA))
"""The quantities that are columns of ``selection_counts``, and of ``upper_bounds``."""

BY_HEAD = tuple(quantity.name for quantity in OF_ATTENTION)
"""The quantities that are columns of ``attention_rows``."""

SPREAD = tuple(quantity.name for quantity in CONCENTRATION)
"""The quantities that are columns of ``concentration`` unchanged."""

VALUE_SCALES = {"value_scale": "value_scale", "rho_0": "rho_0_of_keys"}
"""The columns of ``value_scales``, each with its quantity."""

OF_SEQUENCE, BY_KEY = (_list_names(axes) for axes in (quantities.OF_SEQUENCE, quantities.BY_KEY))
"""The quantities that are columns of ``sink_similarity``, and of ``KEYS``."""

KEYS, SEEN_KEYS = "keys", "seen_keys"
"""The measured tables of keys, of a sequence and of a query."""

LANDED = ("selection_counts", "upper_bounds", "attention_rows", "concentration", "value_scales", "sink_similarity")
"""The measured tables that land."""

UNLANDED = (SEEN_KEYS, KEYS)
"""Those that do not."""

MEASURED = (*LANDED, *UNLANDED)
"""The tables of what is measured of a layer, each ordered by sequence, query, κ, head and N or key."""

TOPS = {"top": ("top_key", "top_role"), "top_contributor": ("top_contributor", "top_contributor_role")}
"""The arrays of the columns ``…_position`` and ``…_role`` of ``concentration``: key and role."""


def build_provenance(
    tensors: "SequenceStore",
    metrics: Mapping[str, Any],
    summaries: Mapping[str, Any],
    twin: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a landed study was made from, as JSON.

    The provenance of the tensor store, extended by ``metrics`` (what they were made with), ``summaries`` (what is
    known of each later step), ``twin`` (name of its twin, and a digest of what its tables were made from) and
    ``landing`` (version of the landing itself).
    """
    landed = {
        "metrics": dict(metrics),
        "summaries": dict(summaries),
        "twin": twin,
        "landing": compute_landing_version(),
    }
    return tensors.provenance | landed


def build_study_rows(
    tensors: "SequenceStore",
    metrics: Mapping[str, Any],
    summaries: Mapping[str, Any] | None = None,
    twin: Mapping[str, Any] | None = None,
    corpus_name: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The row of ``studies``; ``metrics``, ``summaries`` and ``twin`` are as for ``build_provenance``.

    ``corpus_name`` is what a built-in corpus is; None for any other.
    """
    provenance, sizes = build_provenance(tensors, metrics, summaries or {}, twin), tensors.sizes
    settings, inputs = provenance["settings"], provenance["inputs"]
    model = "/".join(filter(None, (settings["model"]["id"], settings["model"].get("gguf"))))
    trained = settings["model"].get("weights", "trained")
    row = {
        "model": model,
        "model_name": inputs["model"].get("name") or model,
        "architecture": (architecture := inputs["model"].get("architecture")),
        "weights": inputs["model"].get("quantisation", trained) if architecture else None,
        "revision": inputs["model"].get("commit") or inputs["model"].get("sha256"),
        "corpus": settings["corpus"]["id"],
        "corpus_name": corpus_name or settings["corpus"]["id"],
        "context_length": sizes["key"],
        "sequences": sizes["sequence"],
        "bos": settings.get("bos", "auto") if architecture else None,
        "text_start": " ".join(inputs["tokenizer"]["start"]) if architecture else None,
        "special_tokens": inputs["corpus"]["special_tokens"] if architecture else None,
        "lost_characters": inputs["corpus"].get("lost_characters") if architecture else None,
        "layers": sizes["layer"],
        "heads": sizes["head"],
        "kv_heads": sizes["kv_head"],
        "head_dim": sizes["head_dim"],
        "dtype": settings["dtype"],
        "device": provenance["versions"]["device"],
        "twin": None if twin is None else twin["name"],
        "provenance": json.dumps(provenance, sort_keys=True),
        "format_version": FORMAT_VERSION,
    }
    columns = {name: pa.array([value], pa.string() if value is None else None) for name, value in row.items()}
    yield pa.RecordBatch.from_pydict(columns)


def build_head_rows(layers: Sequence[LayerSize]) -> Iterator[pa.RecordBatch]:
    """The rows of ``heads``, one batch per layer with attention: head h reads KV head h // (heads / kv_heads)."""
    for layer, size in enumerate(layers):
        if size.heads:
            head = np.arange(size.heads, dtype=np.int16)
            yield build_batch(
                {
                    **fill_columns(head.size, layer=layer),
                    "head": head,
                    "kv_head": head // np.int16(size.heads // size.kv_heads),
                    "head_dim": np.full(head.size, size.head_dim, np.int32),
                }
            )


def build_token_rows(tokens: NDArray[np.int32], texts: Iterable[Sequence[str]]) -> Iterator[pa.RecordBatch]:
    """The rows of ``tokens``, one batch per sequence, from token ids (sequence, key) and the texts of each sequence's
    tokens.
    """
    for sequence, (row, words) in enumerate(zip(tokens, texts, strict=True)):
        yield build_batch(
            {
                "sequence": np.full(row.size, sequence, np.int32),
                "position": np.arange(row.size, dtype=np.int32),
                "token_id": row,
                "token": pa.array(words, pa.string()),
            }
        )


def build_measured_rows(
    arrays: Mapping[str, NDArray[Any]],
    *,
    sequence: int,
    layer: int,
    queries: Sequence[int],
    kappas: Sequence[float],
    scale: str,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of ``MEASURED`` of one layer of one sequence, for each query a batch of every table.

    ``arrays`` are what ``geometry.layers.measure_layer`` has filled, by name; ``queries`` their positions;
    ``kappas`` and ``scale`` what the upper bounds were computed with.
    """
    for index, query in enumerate(queries):
        of_query = {name: array[index] for name, array in arrays.items() if SELECTION[name].axes[0] == "query"}
        place = {"sequence": sequence, "query": query, "layer": layer}
        if (n_keys := int(of_query["n_keys"])) > 1:
            columns = {name: of_query[name][:, : n_keys - 1] for name in BY_N}
            where = index_columns(columns["k_in"].shape, "head", "n", **place, n_keys=n_keys)
            where["n"] += 1
            yield "selection_counts", build_batch(where | {name: column.ravel() for name, column in columns.items()})
            columns = {name: of_query[name][:, :, : n_keys - 1].swapaxes(0, 1) for name in BY_KAPPA}
            where = index_columns(columns[BY_KAPPA[0]].shape, "kappa", "head", "n", **place)
            where["n"] += 1
            where["kappa"] = np.asarray(kappas, np.float64)[where["kappa"]]
            batch = build_batch(where | {name: column.ravel() for name, column in columns.items()}, scale=scale)
            yield "upper_bounds", batch
        where = index_columns(of_query[BY_HEAD[0]].shape, "head", **place, n_keys=n_keys)
        seen = np.full(where["head"].size, n_keys == query + 1)
        yield (
            "attention_rows",
            build_batch(where | {"sink_attended": seen} | {name: of_query[name] for name in BY_HEAD}),
        )
        yield "concentration", _build_concentration_rows(of_query, n_keys, place)
        columns = {column: of_query[name] for column, name in VALUE_SCALES.items()}
        yield "value_scales", build_batch(index_columns(columns["rho_0"].shape, "kv_head", **place) | columns)
        cosines = of_query["cos_last_of_keys"][:, query + 1 - n_keys : query + 1]
        yield SEEN_KEYS, build_batch({"cos_last_of_keys": cosines.ravel()})
    place = {"sequence": sequence, "layer": layer}
    similarity = {name: arrays[name] for name in OF_SEQUENCE}
    yield "sink_similarity", build_batch(index_columns(similarity["rho_0"].shape, "kv_head", **place) | similarity)
    yield KEYS, build_batch({name: arrays[name].ravel() for name in BY_KEY})


def _build_concentration_rows(
    arrays: Mapping[str, NDArray[Any]], n_keys: int, place: Mapping[str, int]
) -> pa.RecordBatch:
    """The rows of ``concentration`` of one query of a layer.

    Arrays count top keys from the first that the query attends to, the table from the start of the sequence.
    """
    columns = {name: _mask_missing(arrays[name]) for name in SPREAD}
    for top, (key, role) in TOPS.items():
        index, code = arrays[key], arrays[role]
        position = _mask_missing(np.where(index < 0, index, index + place["query"] + 1 - n_keys))
        codes = pa.array(code.astype(np.int8), mask=code < 0)
        columns |= {f"{top}_position": position, f"{top}_role": pa.DictionaryArray.from_arrays(codes, list(ROLES))}
    return build_batch(index_columns(arrays["top_key"].shape, "head", **place, n_keys=n_keys) | columns)


def build_query_head_rows(tensors: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``query_heads``, one batch per sequence and layer; none if the store lacks what they are made of.

    The keys of largest weight are of the first ``READ_SEQUENCES``.
    """
    for where, measures in _iterate_measured(tensors, "query_measures"):
        later = measures[:, 1:]  # (head, query, measure)
        head, query = (axis.ravel() for axis in np.indices(later.shape[:2], np.int32))
        columns = {"query": query + np.int32(1), "head": head.astype(np.int16)}
        for quantity, column in zip(OF_QUERIES, np.moveaxis(later, -1, 0), strict=True):
            known = ~np.isnan(column.ravel())
            whole = np.where(known, column.ravel(), -1).astype(quantity.dtype)
            columns[quantity.name] = pa.array(whole, mask=~known)
        lists = dict(zip(("top_positions", "top_weights"), (pa.int32(), pa.float32()), strict=True))
        columns |= {name: pa.nulls(head.size, pa.list_(kind)) for name, kind in lists.items()}
        if where["sequence"] < READ_SEQUENCES:
            keys = read_layer(tensors, "query_keys", where["layer"], sequence=where["sequence"])[:, 1:]
            known = ~np.isnan(keys[:, :, 0])  # of (head, query, number, rank)
            ends = pa.array(np.append(0, known.sum(axis=-1).ravel().cumsum()).astype(np.int32))
            for number, (name, kind) in enumerate(lists.items()):
                columns[name] = pa.ListArray.from_arrays(ends, pa.array(keys[:, :, number][known]).cast(kind))
        yield build_batch(fill_columns(head.size, **where) | columns)


def build_context_rows(tensors: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``context_heads``, one batch per sequence and layer; none as ``build_query_head_rows``."""
    sizes = list_half_octaves(tensors.sizes["key"]).astype(np.int32)
    for where, means in _iterate_measured(tensors, "context_means"):
        head, context, n = np.nonzero(~np.isnan(means[:, 0]))
        columns = {"head": head.astype(np.int16), "context": 2 << context.astype(np.int32), "n": sizes[n]}
        rates = {name: means[head, at, context, n] for at, name in enumerate(RATES)}
        yield build_batch(fill_columns(head.size, **where) | columns | rates)


def _iterate_measured(tensors: "SequenceStore", name: str) -> Iterator[tuple[dict[str, int], NDArray[Any]]]:
    """Sequence and layer, and this part of an array of every query, (head, …), unless the store lacks the array."""
    if name in tensors.absent:
        return
    for sequence in range(tensors.sizes["sequence"]):
        for layer in list_attending_layers(tensors):
            yield {"sequence": sequence, "layer": layer}, read_layer(tensors, name, layer, sequence=sequence)


def build_top_key_rows(
    ranked: Mapping[str, NDArray[Any]], *, layer: int, first: int, n: int, **constant: int
) -> pa.RecordBatch:
    """The rows of ``top_keys`` of one query of a layer.

    ``ranked`` are the arrays of ``geometry.TopKeys`` by name, (…, K); leading axes are the heads in order. ``first`` is
    the first key that the query attends to, ``n`` the N of s_N; ``constant`` are columns of one value.
    """
    keys, within = ranked["key"].shape[-1], ranked["within_r_min_at"][..., :TOP_KEYS]
    bits = (within << np.arange(within.shape[-1])).sum(axis=-1)  # the flags of the last axis, the first as the lowest
    head, rank = (axis.ravel() for axis in np.indices((ranked["key"].size // keys, keys), np.int16))
    return build_batch(
        fill_columns(rank.size, layer=layer, n=n, **constant)
        | {"head": head, "rank": rank + np.int16(1)}
        | {"position": ranked["key"].ravel() + np.int32(first)}
        | {name: ranked[name].ravel() for name in ("weight", "contribution", "relative_distance", "within_r_min")}
        | {"within_r_min_at": bits.ravel().astype(np.int32)}
    )


def _mask_missing(column: NDArray[Any]) -> pa.Array:
    """A column of the store, NULL where it is missing: NaN, or below 0 in a column of whole numbers."""
    whole = np.issubdtype(column.dtype, np.integer)
    return pa.array(column, mask=column < 0 if whole else np.isnan(column))


TYPES = dict.fromkeys(("layer", "head", "kv_head"), np.int16)
"""Types of columns of whole numbers, if not int32."""


def fill_columns(rows: int, **constants: int) -> dict[str, NDArray[Any]]:
    """Columns that have one value in all rows, in the type of their names."""
    return {name: np.full(rows, value, TYPES.get(name, np.int32)) for name, value in constants.items()}


def index_columns(shape: tuple[int, ...], *axes: str, **constants: int) -> dict[str, NDArray[Any]]:
    """The columns that identify the elements of an array, flat: indices along its axes, and columns of one value."""
    indices = np.indices(shape, np.int32).reshape(len(shape), -1)
    places = {name: index.astype(TYPES.get(name, np.int32)) for name, index in zip(axes, indices, strict=True)}
    return fill_columns(indices.shape[1], **constants) | places


def build_batch(columns: Mapping[str, NDArray[Any] | pa.Array], **texts: str) -> pa.RecordBatch:
    """A record batch of NumPy columns, NaN becoming NULL, Arrow columns, and columns with one text in all rows."""
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column, from_pandas=_has_nan(column))
        for name, column in columns.items()
    }
    rows = len(next(iter(arrays.values())))
    for name, text in texts.items():
        arrays[name] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([text]))
    return pa.RecordBatch.from_pydict(arrays)


def _has_nan(column: NDArray[Any]) -> bool:
    """Whether a column has a NaN; Arrow looks for them ten times as slowly."""
    return column.dtype.kind == "f" and column.size > 0 and bool(np.isnan(column.max()))


ARROW_TYPES: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "DOUBLE[]": pa.list_(pa.float64()),
}
"""The Arrow type of each type in ``sql/schema`` that listed rows have."""


def build_listed(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """A record batch of a table from its rows one by one, NaN and what a row lacks becoming NULL.

    Its columns are those of ``sql/schema``, but for the study.
    """
    schema = pa.schema(
        [
            (column.name, ARROW_TYPES[column.type])
            for column in sql.read_statement("schema", table).typed
            if column.name != "study"
        ]
    )
    known = [{name: value for name, value in row.items() if value == value} for row in rows]  # noqa: PLR0124 (NaN)
    return pa.RecordBatch.from_pylist(known, schema)
