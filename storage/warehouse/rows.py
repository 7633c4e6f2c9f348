"""The rows of every warehouse table, streamed from the stores as Arrow record batches.

One function per table of ``sql/schema``. Each batch is at most one query of one sequence, so memory is bounded by
that, not by the study.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sql
from geometry.grids import list_half_octaves
from geometry.quantities import RATES, ROLES, TOP_KEYS
from sql.columns import CONCENTRATION, OF_ATTENTION, OF_QUERIES
from storage.warehouse.connection import FORMAT_VERSION
from storage.warehouse.versions import compute_landing_version
from storage.zarr.arrays import READ_SEQUENCES, SELECTION, LayerSize
from storage.zarr.layers import Arrays, find_present_heads, list_attending_layers, read_layer

if TYPE_CHECKING:
    from storage.zarr.sequences import SequenceStore

BY_N = tuple(spec.name for spec in SELECTION if spec.dims[-2:] == ("head", "n"))
"""The arrays of the metrics store that become columns of ``selection_counts``."""

BY_KAPPA = tuple(spec.name for spec in SELECTION if "kappa" in spec.dims)
"""The arrays of the metrics store that become columns of ``upper_bounds``."""

BY_HEAD = tuple(quantity.name for quantity in OF_ATTENTION)
"""The arrays of the metrics store that become columns of ``attention_rows``."""

SPREAD = tuple(quantity.name for quantity in CONCENTRATION)
"""The arrays of the metrics store that become columns of ``concentration`` unchanged."""

TOPS = {"top": ("top_key", "top_role"), "top_contributor": ("top_contributor", "top_contributor_role")}
"""The arrays of the columns ``…_position`` and ``…_role`` of ``concentration``: key and role."""


def build_provenance(
    tensors: "SequenceStore",
    metrics: "SequenceStore",
    summaries: Mapping[str, Any],
    twin: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a landed study was made from, as JSON.

    The provenance of the tensor store, extended by ``metrics`` (provenance of the metrics store), ``summaries`` (what
    is known of each later step), ``twin`` (name of its twin, and a digest of what its tables were made from) and
    ``landing`` (version of the landing itself).
    """
    own = {part: value for part, value in metrics.provenance.items() if part not in {"study", "tensors"}}
    landed = {"metrics": own, "summaries": dict(summaries), "twin": twin, "landing": compute_landing_version()}
    return tensors.provenance | landed


def build_study_rows(
    tensors: "SequenceStore",
    metrics: "SequenceStore",
    summaries: Mapping[str, Any] | None = None,
    twin: Mapping[str, Any] | None = None,
    corpus_name: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The row of ``studies``; ``summaries`` and ``twin`` are as for ``build_provenance``.

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
    """The rows of ``tokens``, one batch per sequence.

    Parameters
    ----------
    tokens
        Token ids, (sequence, key).
    texts
        For each sequence, the text of each of its tokens.
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


def build_selection_rows(metrics: Arrays, queries: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``selection_counts``, one batch per sequence and query; ``queries`` are positions of the queries."""
    there, layer, head, n = _index_selections(metrics)
    for at, constant in _iterate_queries(metrics, queries):
        n_keys = _read_n_keys(metrics, at)[layer]
        real = there & (n < n_keys)
        columns = {name: metrics.read(name, at) for name in BY_N}
        where = {"layer": layer, "head": head, "n": n, "n_keys": n_keys}
        rows = {name: column[real] for name, column in (where | columns).items()}
        yield build_batch(fill_columns(rows["n"].size, **constant) | rows)


def count_selection_rows(metrics: "SequenceStore") -> int:
    """How many rows ``build_selection_rows`` yields: n_keys − 1 for every sequence, query, layer and head."""
    n_keys, heads = metrics.read("n_keys", slice(None)), [size.heads for size in metrics.layers]
    return int(((n_keys - 1).clip(min=0) * np.array(heads, np.int64)).sum())


def build_upper_bound_rows(metrics: "SequenceStore", queries: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``upper_bounds``, one batch per sequence, query and κ; ``queries`` are positions of the queries.

    κ and the scale are those of the store's provenance.
    """
    analysis = metrics.provenance["analysis"]
    there, layer, head, n = _index_selections(metrics)
    for at, constant in _iterate_queries(metrics, queries):
        real = there & (n < _read_n_keys(metrics, at)[layer])
        where = {"layer": layer[real], "head": head[real], "n": n[real]}
        where |= fill_columns(where["n"].size, **constant)
        bounds = {name: metrics.read(name, at) for name in BY_KAPPA}  # (layer, head, kappa, n)
        for index, kappa in enumerate(analysis["kappas"]):
            columns = {name: bound[:, :, index][real] for name, bound in bounds.items()}
            kappas = {"kappa": np.full(where["n"].size, kappa, np.float64)}
            yield build_batch(where | kappas | columns, scale=analysis["scale"])


def build_attention_rows(metrics: Arrays, queries: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``attention_rows``, one batch per sequence and query; ``queries`` are positions of the queries."""
    there = find_present_heads(metrics, "head")
    layer, head = _locate_heads(there)
    for at, constant in _iterate_queries(metrics, queries):
        n_keys = _read_n_keys(metrics, at)[layer]
        columns = {name: metrics.read(name, at)[there] for name in BY_HEAD}
        where = {"layer": layer, "head": head, "n_keys": n_keys, "sink_attended": n_keys == constant["query"] + 1}
        yield build_batch(fill_columns(layer.size, **constant) | where | columns)


def build_concentration_rows(metrics: Arrays, queries: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``concentration``, one batch per sequence and query; ``queries`` are positions of the queries.

    The store counts top keys from the first that the query attends to, the table from the start of the sequence.
    """
    there = find_present_heads(metrics, "head")
    layer, head = _locate_heads(there)
    for at, constant in _iterate_queries(metrics, queries):
        n_keys = _read_n_keys(metrics, at)[layer]
        columns = {name: _mask_missing(metrics.read(name, at)[there]) for name in SPREAD}
        for top, (key, role) in TOPS.items():
            index, code = (metrics.read(name, at)[there] for name in (key, role))
            position = _mask_missing(np.where(index < 0, index, index + constant["query"] + 1 - n_keys))
            codes = pa.array(code.astype(np.int8), mask=code < 0)
            columns |= {f"{top}_position": position, f"{top}_role": pa.DictionaryArray.from_arrays(codes, list(ROLES))}
        where = {"layer": layer, "head": head, "n_keys": n_keys}
        yield build_batch(fill_columns(layer.size, **constant) | where | columns)


def build_value_scale_rows(metrics: Arrays, queries: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of ``value_scales``, one batch per sequence and query; ``queries`` are positions of the queries."""
    there = find_present_heads(metrics, "kv_head")
    layer, kv_head = _locate_heads(there)
    for at, constant in _iterate_queries(metrics, queries):
        columns = {
            column: metrics.read(name, at)[there]
            for column, name in {"value_scale": "value_scale", "rho_0": "rho_0_of_keys"}.items()
        }
        yield build_batch(fill_columns(layer.size, **constant) | {"layer": layer, "kv_head": kv_head} | columns)


def build_sink_similarity_rows(metrics: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``sink_similarity``, one batch per sequence."""
    there = find_present_heads(metrics, "kv_head")
    layer, kv_head = _locate_heads(there)
    for sequence in range(metrics.sizes["sequence"]):
        columns = {name: metrics.read(name, sequence)[there] for name in ("rho_0", "rho_0_sd")}
        yield build_batch(fill_columns(layer.size, sequence=sequence) | {"layer": layer, "kv_head": kv_head} | columns)


def build_query_head_rows(tensors: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``query_heads``, one batch per sequence and layer; none if the store lacks what they are made of."""
    for where, measures in _iterate_measured(tensors, "query_measures"):
        later = measures[:, 1:]  # (head, query, measure)
        head, query = (axis.ravel() for axis in np.indices(later.shape[:2], np.int32))
        columns = {"query": query + np.int32(1), "head": head.astype(np.int16)}
        for quantity, column in zip(OF_QUERIES, np.moveaxis(later, -1, 0), strict=True):
            known = ~np.isnan(column.ravel())
            whole = np.where(known, column.ravel(), -1).astype(quantity.dtype)
            columns[quantity.name] = pa.array(whole, mask=~known)
        yield build_batch(fill_columns(head.size, **where) | columns)


def build_query_key_rows(tensors: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``query_keys``, one batch per sequence and layer; none as ``build_query_head_rows``."""
    for where, keys in _iterate_measured(tensors, "query_keys", READ_SEQUENCES):
        later = keys[:, 1:]  # (head, query, number, rank)
        head, query = (axis.ravel() for axis in np.indices(later.shape[:2], np.int32))
        known = ~np.isnan(later[:, :, 0])
        ends = pa.array(np.append(0, known.sum(axis=-1).ravel().cumsum()).astype(np.int32))
        position, weight = (later[:, :, number][known] for number in range(2))
        lists = {"position": position.astype(np.int32), "weight": weight}
        columns = {"query": query + np.int32(1), "head": head.astype(np.int16)}
        columns |= {name: pa.ListArray.from_arrays(ends, pa.array(flat)) for name, flat in lists.items()}
        yield build_batch(fill_columns(head.size, **where) | columns)


def build_context_rows(tensors: "SequenceStore") -> Iterator[pa.RecordBatch]:
    """The rows of ``context_heads``, one batch per sequence and layer; none as ``build_query_head_rows``."""
    sizes = list_half_octaves(tensors.sizes["key"]).astype(np.int32)
    for where, means in _iterate_measured(tensors, "context_means"):
        head, context, n = np.nonzero(~np.isnan(means[:, 0]))
        columns = {"head": head.astype(np.int16), "context": 2 << context.astype(np.int32), "n": sizes[n]}
        rates = {name: means[head, at, context, n] for at, name in enumerate(RATES)}
        yield build_batch(fill_columns(head.size, **where) | columns | rates)


def _iterate_measured(
    tensors: "SequenceStore", name: str, most: int | None = None
) -> Iterator[tuple[dict[str, int], NDArray[Any]]]:
    """Sequence and layer, and this part of an array of every query, (head, …), unless the store lacks the array.

    most: sequences, from the first on; all if None.
    """
    if name in tensors.absent:
        return
    for sequence in range(tensors.sizes["sequence"])[:most]:
        for layer in list_attending_layers(tensors):
            yield {"sequence": sequence, "layer": layer}, read_layer(tensors, name, layer, sequence=sequence)


def build_top_key_rows(
    ranked: Mapping[str, NDArray[Any]], *, layer: int, first: int, n: int, **constant: int
) -> pa.RecordBatch:
    """The rows of ``top_keys`` of one query of a layer.

    Parameters
    ----------
    ranked
        The arrays of ``geometry.TopKeys`` by name, (…, K); leading axes are the heads in order.
    layer, first, n
        Number of the layer, first key that the query attends to, and N of s_N.
    constant
        Columns that have one value in all rows.
    """
    keys = ranked["key"].shape[-1]
    head, rank = (axis.ravel() for axis in np.indices((ranked["key"].size // keys, keys), np.int16))
    return build_batch(
        fill_columns(rank.size, layer=layer, n=n, **constant)
        | {"head": head, "rank": rank + np.int16(1)}
        | {"position": ranked["key"].ravel() + np.int32(first)}
        | {name: ranked[name].ravel() for name in ("weight", "contribution", "relative_distance", "within_r_min")}
        | {"within_r_min_at": _pack_bits(ranked["within_r_min_at"][..., :TOP_KEYS])}
    )


def _pack_bits(flags: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The flags of the last axis as the bits of a number, the first as the lowest, flat."""
    bits: NDArray[np.int32] = (flags << np.arange(flags.shape[-1])).sum(axis=-1).ravel().astype(np.int32)
    return bits


def _locate_heads(there: NDArray[np.bool_]) -> tuple[NDArray[np.int16], ...]:
    """Layer and head of every existing head, flat; ``there`` is bool (layer, head)."""
    return tuple(index.astype(np.int16) for index in np.nonzero(there))


def _index_selections(metrics: Arrays) -> tuple[NDArray[Any], ...]:
    """Whether the head exists, layer, head and N of each element of an array (layer, head, n) of one sequence."""
    there = find_present_heads(metrics, "head")
    layer, head, n = np.indices((*there.shape, metrics.sizes["n"]), dtype=np.int32)
    return there[:, :, None], layer.astype(np.int16), head.astype(np.int16), n + 1


def _iterate_queries(metrics: Arrays, queries: Sequence[int]) -> Iterator[tuple[tuple[int, int], dict[str, int]]]:
    """Every query of every sequence: its index in the arrays, and its columns of one value."""
    for sequence in range(metrics.sizes["sequence"]):
        for index, query in enumerate(queries):
            yield (sequence, index), {"sequence": sequence, "query": query}


def _read_n_keys(metrics: Arrays, at: tuple[int, int]) -> NDArray[np.int32]:
    """Keys that one query of one sequence may attend to, (layer,); -1 in a layer without attention."""
    return np.asarray(metrics.read("n_keys", at), np.int32)


def _mask_missing(column: NDArray[Any]) -> pa.Array:
    """A column of the store, NULL where it is missing: NaN, or below 0 in a column of whole numbers."""
    whole = np.issubdtype(column.dtype, np.integer)
    return pa.array(column, mask=column < 0 if whole else np.isnan(column))


TYPES = dict.fromkeys(("layer", "head", "kv_head"), np.int16)
"""Types of columns of whole numbers, if not int32."""


def fill_columns(rows: int, **constants: int) -> dict[str, NDArray[Any]]:
    """Columns that have one value in all rows, in the type of their names."""
    return {name: np.full(rows, value, TYPES.get(name, np.int32)) for name, value in constants.items()}


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
