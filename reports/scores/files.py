"""Files of head measures for other tools, written from the tables of a landed study.

The measures are defined in ``sql/views/head_measures.sql``.

Formats, as their readers expect them:

- ``duo``: a folder with ``full_attention_heads.tsv``, a line for each layer with a number from 0 to 1 for each KV head,
  1 for full attention, and ``config.json`` with ``sink_size`` and ``recent_size``, as ``load_attn_pattern`` of
  DuoAttention (mit-han-lab/duo-attention, ``duo_attn/utils.py``) reads them.
- ``lukv``: a NumPy array (99, layers, KV heads): element i has the shares of keys to prune if (i + 1) % of all keys
  are pruned, as ``LUKVPress`` of kvpress (NVIDIA/kvpress, ``kvpress/presses/lukv_press.py``) reads it.
- ``retrieval``: one line of JSON, ``{"layer-head": [score of each sequence]}``, layer by layer, as in the
  files ``head_score/*.json`` of nightdessert/Retrieval_Head.
- ``headvis``: a folder; see ``reports.scores.headvis``.
- ``csv``, ``parquet``, ``json``: rows of ``head_measures``.

``NAME.made_from.json`` is written next to each file; in the folder of ``duo`` it is ``made_from.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from reports.findings.numbers import count
from reports.queries import ask
from storage.errors import UserError
from storage.files.staging import write_atomically
from storage.files.user_paths import refuse_existing

Form = Literal["duo", "lukv", "retrieval", "headvis", "csv", "parquet", "json"]
Group = Literal["max", "mean"]

SHARES = np.arange(1, 100) / 100  # Shares of all keys that are pruned, one for each element of ``lukv``
ABLATION = ("delta_loss_", "kl_")  # Prefixes of the measures that a study has only if it asks for effects

REMEDY = "name a place that can be written"

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """What is exported, and how."""

    form: Form
    measure: str | None  # The measure; None for all of them, in the formats that hold rows
    group: Group = "max"  # How the values of the query heads of one KV head are combined
    inverted: bool = False  # Whether heads with the lowest values rank first
    sink_size: int = 128
    recent_size: int = 256
    """Keys that heads without full attention keep, for ``duo``; defaults as in the published patterns."""


def write(
    connection: duckdb.DuckDBPyConnection, study: str, choice: Choice, path: Path, *, overwrite: bool = False
) -> list[Path]:
    """Write one measure of all heads of a landed study, or all measures; return the files written. Not ``headvis``."""
    refuse_missing(connection, study)
    if choice.form in {"csv", "parquet", "json"}:
        rows, content = _encode_rows(connection, study, choice)
        files = {path: content}
    elif choice.measure is None:
        raise UserError(f"The format '{choice.form}' holds one measure; name it with --by, such as --by effective_keys")
    else:
        rows = _read_measure(connection, study, choice.measure)
        if lacking := int(np.isnan(rows["value"].to_numpy().astype(np.float64)).sum()):
            raise UserError(
                f"The measure '{choice.measure}' does not exist for {lacking} of {len(rows)} heads of '{study}'; "
                "choose another"
            )
        files = _encode_for_tools(connection, study, choice, rows, path)
    beside = path / "made_from.json" if choice.form == "duo" else Path(f"{path}.made_from.json")
    files[beside] = _encode_json(_describe_origin(connection, study, choice, rows))
    refuse_existing(files, overwrite=overwrite)
    for file, content in files.items():
        write_atomically(file, content, remedy=REMEDY)
    return list(files)


def refuse_missing(connection: duckdb.DuckDBPyConnection, study: str) -> None:
    """Refuse a study (``UserError``) that has not been landed."""
    if not ask(connection, "heads", study=study).table.num_rows:
        raise UserError(
            f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
        )


def _encode_for_tools(
    connection: duckdb.DuckDBPyConnection, study: str, choice: Choice, rows: pa.Table, path: Path
) -> dict[Path, bytes]:
    if choice.form == "retrieval":
        return {path: _encode_retrieval(connection, study, choice, rows)}
    scores = _group_by_kv_head(connection, study, choice, rows)
    if choice.form == "lukv":
        buffer = BytesIO()
        np.save(buffer, compute_pruned_shares(scores), allow_pickle=False)
        return {path: buffer.getvalue()}
    text = "".join("\t".join(f"{share:.9f}" for share in layer) + "\n" for layer in rank_scores(scores))
    sizes = {"sink_size": choice.sink_size, "recent_size": choice.recent_size}
    return {path / "full_attention_heads.tsv": text.encode(), path / "config.json": _encode_json(sizes)}


def rank_scores(scores: F64) -> F64:
    """Rank heads from 0, the lowest score, to 1, the highest: the share of the other heads that are lower.

    Equal heads count half. A threshold on a share of heads depends on the order alone, so a measure may have any unit.

    Parameters
    ----------
    scores
        Finite, (layers, KV heads).
    """
    flat = scores.ravel()
    below = (flat[:, None] > flat).sum(axis=1) + ((flat[:, None] == flat).sum(axis=1) - 1) / 2
    ranks: F64 = below.reshape(scores.shape) / max(1, flat.size - 1)
    return ranks


def compute_pruned_shares(scores: F64) -> F64:
    """Compute shares of keys to prune in each head, with means over heads of ``SHARES``; (99, layers, KV heads).

    A head keeps keys in proportion to its score, and at most all of them; the remainder is shared among the other
    heads. So no head prunes less if more is pruned overall.

    Parameters
    ----------
    scores
        Positive, (layers, KV heads).
    """
    flat = scores.ravel() / scores.max()
    ascending = np.sort(flat)
    count, sums = flat.size, np.append(0.0, ascending.cumsum())
    whole = count - np.arange(count)  # heads that keep all keys if the scale is 1 / score of the head
    kept_at = sums[:-1] / ascending + whole  # keys kept there, falling with the score of the first that keeps all
    shares = np.empty((len(SHARES), count))
    for index, share in enumerate(SHARES):
        keys = count * (1 - share)
        partly = int((kept_at >= keys).sum())  # number of the lowest heads that keep fewer than all
        scale = (keys - (count - partly)) / sums[partly]
        shares[index] = 1 - np.minimum(1, scale * flat)
    return shares.reshape(len(SHARES), *scores.shape)


def _read_measure(connection: duckdb.DuckDBPyConnection, study: str, measure: str) -> pa.Table:
    """One measure of all heads, some of which may lack it."""
    rows = ask(connection, "head_measure", study=study, measure=measure).table
    if rows["measure"].null_count == len(rows):
        known = sorted(set(ask(connection, "measures_of_heads", study=study).table["measure"].to_pylist()))
        hint = " (heads are ablated only if its `analysis` has `effects`)" if measure.startswith(ABLATION) else ""
        raise UserError(f"The study '{study}' has no measure '{measure}'{hint}; it has {', '.join(known)}")
    return rows


def _check_layers(connection: duckdb.DuckDBPyConnection, study: str, form: str, heads: NDArray[np.int64]) -> None:
    """Refuse a model in which some layers have no attention or fewer heads: the format has no row for them."""
    (origin,) = ask(connection, "origin_of_study", study=study).rows()
    counts = np.bincount(heads[:, 0], minlength=origin["layers"])
    if (odd := np.flatnonzero(counts != counts.max())).size:
        heads_of_layer = int(counts[odd[0]])
        what = (
            f"{count(heads_of_layer, 'head')}, and others {counts.max()}" if heads_of_layer else "no softmax attention"
        )
        raise UserError(
            f"The format '{form}' needs the same number of heads in every layer, but layer {odd[0]} of '{study}' has "
            f"{what}; choose the format csv, parquet or json"
        )


def _group_by_kv_head(connection: duckdb.DuckDBPyConnection, study: str, choice: Choice, rows: pa.Table) -> F64:
    """Combine scores by KV head, (layers, KV heads); higher scores keep more keys."""
    layer, head, value = (rows[name].to_numpy().astype(kind) for name, kind in _COLUMNS.items())
    places = np.unique(np.stack([layer, head], axis=1), axis=0)
    _check_layers(connection, study, choice.form, places)
    shape = (layer.max() + 1, head.max() + 1)
    if choice.form == "duo" and 1 in shape:
        raise UserError(f"DuoAttention cannot read a pattern with one layer or one KV head per layer, as '{study}' has")
    if choice.form == "lukv" and value.min() <= 0:
        raise UserError(
            f"The measure '{choice.measure}' is {value.min():.4g} for a head, but shares of keys need values above 0; "
            "choose a number of keys, such as effective_keys or elbow"
        )
    if choice.inverted:
        value = 1 / value if choice.form == "lukv" else -value
    groups = pa.table({"layer": layer, "head": head, "value": value}).group_by(["layer", "head"])
    of_kv_head = groups.aggregate([("value", choice.group)])
    grouped = np.empty(shape)
    grouped[of_kv_head["layer"], of_kv_head["head"]] = of_kv_head[f"value_{choice.group}"]
    return grouped


_COLUMNS: Mapping[str, type[np.generic]] = {"layer": np.int64, "kv_head": np.int64, "value": np.float64}


def _encode_retrieval(connection: duckdb.DuckDBPyConnection, study: str, choice: Choice, rows: pa.Table) -> bytes:
    """Encode one line of JSON: scores of each query head, one per sequence, or one if the measure covers them all."""
    heads = np.array([rows["layer"].to_numpy(), rows["head"].to_numpy()], np.int64).T
    _check_layers(connection, study, choice.form, heads)
    sign = -1 if choice.inverted else 1
    scores: dict[str, list[float]] = {f"{layer}-{head}": [] for layer, head in heads.tolist()}
    by_sequence = ask(connection, "head_measure_by_sequence", study=study, measure=choice.measure).rows()
    for row in by_sequence:
        if row["value"] is not None:
            scores[f"{row['layer']}-{row['head']}"].append(sign * row["value"])
    for row in [] if by_sequence else rows.to_pylist():
        scores[f"{row['layer']}-{row['head']}"].append(sign * row["value"])
    return json.dumps(scores, allow_nan=False).encode() + b"\n"


def _encode_rows(connection: duckdb.DuckDBPyConnection, study: str, choice: Choice) -> tuple[pa.Table, bytes]:
    if choice.measure is None:
        rows = ask(connection, "measures_of_heads", study=study).table
    else:
        rows = _read_measure(connection, study, choice.measure)
    if choice.form == "json":
        return rows, _encode_json(rows.to_pylist())
    buffer = BytesIO()
    (csv.write_csv if choice.form == "csv" else parquet.write_table)(rows, buffer)
    return rows, buffer.getvalue()


def _describe_origin(
    connection: duckdb.DuckDBPyConnection, study: str, choice: Choice, rows: pa.Table
) -> dict[str, Any]:
    (known,) = ask(connection, "origin_of_study", study=study).rows()
    known["versions"] = json.loads(known["versions"] or "null")
    intervals = [
        {name: row[name] for name in ("layer", "head", "measure", "value", "low", "high")}
        for row in rows.to_pylist()
        if row["low"] is not None
    ]
    return {"study": study, **known, **asdict(choice), "intervals": intervals}


def _encode_json(content: Any) -> bytes:
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"
