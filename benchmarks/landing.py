"""Landing a study in the warehouse against a bare DuckDB insert of the same record batches.

Holds the benchmark ``landing`` and its made-up study.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa

import sql
from benchmarks.measure import Benchmark, Result, alternate, compare
from geometry.quantiles import quantile_over_ln_n
from storage.files.places import Local
from storage.warehouse import rows
from storage.warehouse.landing import land
from storage.zarr.arrays import SELECTION
from storage.zarr.sequences import SequenceStore

Tables = Mapping[str, list[pa.RecordBatch]]

BY_N = ("selection_counts", "upper_bounds")
"""The tables that grow with the context, which are all but a trifle of a landing."""

PROVENANCE = {
    "study": "landing",
    "settings": {"model": {"id": "none"}, "corpus": {"id": "none"}, "dtype": "float32"},
    "inputs": {"model": {}},
    "versions": {"device": "cpu"},
    "analysis": {"kappas": [0.5], "scale": "unit"},
}


def landing(*, sequences: int, layers: int, heads: int, context: int, repeats: int) -> list[Result]:
    """Some sequences of a model of ``layers`` x ``heads`` heads land: with their checks, and without."""
    sizes = {"sequence": sequences, "query": 1, "layer": layers, "head": heads, "kv_head": heads, "key": context}
    sizes |= {"n": context - 1, "kappa": 1, "head_dim": 1}
    with TemporaryDirectory() as name:
        folder = Path(name)
        tables = _tables(folder, sizes)
        landed = {name: [_with_study(batch) for batch in tables[name]] for name in BY_N}
        names = (str(number) for number in count())  # every landing and every insert makes a file of its own
        seconds = alternate(
            lambda: _land(folder, f"checked{next(names)}", tables),
            lambda: _land_unchecked(folder, f"unchecked{next(names)}", tables),
            lambda: _insert(folder / f"bare{next(names)}.duckdb", landed),
            repeats=repeats,
        )
    rows_by_n = sum(len(batch) for batches in landed.values() for batch in batches)
    measured = {"sequences": sequences, "layers": layers, "heads": heads, "context": context, "rows": rows_by_n}
    checked = ("landing a study, its checks included", seconds[:, 0])
    unchecked = ("landing a study without its checks", seconds[:, 1])
    bare = ("bare DuckDB insert of the same record batches, with CHECKPOINT", seconds[:, 2])
    share = float(np.median(1 - seconds[:, 1] / seconds[:, 0]))
    return [
        compare("landing", "speed", checked, bare, sizes=measured, target=0.9),
        compare("landing.unchecked", "speed", unchecked, bare, sizes=measured),
        compare("landing.checks", "cost", checked, unchecked, sizes=measured, note=f"checks: {share:.0%} of a landing"),
    ]


def _land(folder: Path, study: str, tables: Tables) -> None:
    """Land a study as users do; a landing that a check refuses would be no measurement."""
    landed = land(folder / "warehouse", study, tables)
    if not landed.published:
        msg = f"the study of this benchmark is refused: {landed.violations}"
        raise RuntimeError(msg)


def _land_unchecked(folder: Path, study: str, tables: Tables) -> None:
    """Land a study as if ``sql/checks`` were empty."""
    names = sql.names
    with patch.object(sql, "names", lambda kind: () if kind == "checks" else names(kind)):
        _land(folder, study, tables)


def _with_study(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the column ``study`` that a landing adds, so that both contenders store the same table."""
    study = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int8)), pa.array(["landing"]))
    return batch.add_column(0, "study", study)


def _insert(path: Path, tables: Tables) -> None:
    """What DuckDB alone needs: a fresh file, tables without constraints, one statement each, a checkpoint."""
    with duckdb.connect(path) as connection:
        for name, batches in tables.items():
            connection.register("empty", pa.Table.from_batches([], batches[0].schema))
            connection.execute(f"CREATE TABLE {name} AS FROM empty")
            connection.register("incoming", pa.RecordBatchReader.from_batches(batches[0].schema, batches))
            connection.execute(f"INSERT INTO {name} FROM incoming")
        connection.execute("CHECKPOINT")


def _tables(folder: Path, sizes: Mapping[str, int]) -> Tables:
    """The tables of a made-up study as the pipeline lands them, made before the clock runs."""
    metrics = SequenceStore.resume(Local(folder / "metrics.zarr"), SELECTION, sizes, PROVENANCE)
    for sequence in range(sizes["sequence"]):
        metrics.write(sequence, _metrics(sizes, sequence))
    return {
        "studies": list(rows.study_rows(metrics, metrics)),
        "heads": list(rows.head_rows(metrics.layers)),
        "selection_counts": list(rows.selection_rows(metrics, [sizes["key"] - 1])),
        "upper_bounds": list(rows.upper_bound_rows(metrics, [sizes["key"] - 1])),
        "attention_rows": list(rows.attention_rows(metrics, [sizes["key"] - 1])),
        "concentration": list(rows.concentration_rows(metrics, [sizes["key"] - 1])),
        "value_scales": list(rows.value_scale_rows(metrics, [sizes["key"] - 1])),
        **_summaries(metrics),
    }


def _summaries(metrics: SequenceStore) -> Tables:
    """Means over sequences, and fits that found nothing."""
    sizes = metrics.sizes
    query, nothing = sizes["key"] - 1, np.full((sizes["kv_head"], sizes["key"]), np.nan)
    layer, kv_head = (axis.ravel().astype(np.int16) for axis in np.indices((sizes["layer"], sizes["kv_head"])))
    none = {
        "sequences": np.full(layer.size, sizes["sequence"], np.int32),
        "distances": np.zeros(layer.size, np.int32),
    }
    similar = rows.batch(none | {"kv_heads": none["sequences"]}, status="undefined", status_floor="undefined")
    fitted = none | {"positions": none["distances"], "zero_positions": none["distances"]}
    weighed = {name: fitted[name] for name in ("sequences", "positions", "zero_positions")}
    weighed |= {"query": np.full(layer.size, query, np.int32)}
    place, by_head = {"layer": layer, "kv_head": kv_head}, {"layer": layer, "head": kv_head}
    return {
        "assumption_norms": [
            rows.batch(place | {"sequences": none["sequences"], "c": np.zeros(layer.size)}, status="zero")
        ],
        "assumption_similarity": [rows.batch(place | none, status="undefined", status_floor="undefined")],
        "assumption_similarity_model": [similar.slice(0, 1)],
        "cosine_by_distance": list(
            rows.distance_rows([(nothing, nothing)] * sizes["layer"], sequences=sizes["sequence"])
        ),
        "assumption_weights": [rows.batch(by_head | weighed, status="undefined")],
        "assumption_weights_model": [
            rows.batch(weighed | {"heads": none["sequences"]}, status="undefined").slice(0, 1)
        ],
        "principal_directions": [rows.batch(place | {"sequences": none["sequences"]}, status="zero")],
        **_contributions(sizes),
        **_means(metrics),
    }


def _contributions(sizes: Mapping[str, int]) -> Tables:
    """What every position contributes to every head: nothing; and no effect of the sink."""
    query = sizes["key"] - 1
    layer, head, position = (np.indices([sizes[axis] for axis in ("layer", "head", "key")], np.int32)).reshape(3, -1)
    same = {
        "query": np.full(layer.size, query, np.int32),
        "sequences": np.full(layer.size, sizes["sequence"], np.int32),
    }
    nothing = {name: np.zeros(layer.size, np.float32) for name in ("mean_norm_y", "sd_norm_y")}
    place = {"layer": layer, "head": head, "position": position}
    effect = same | {"n": position + 1, "heads": position * 0}
    return {
        "contributions": [rows.batch(same | place | nothing)],
        "sink_effect": [rows.batch(effect).slice(0, query)],
    }


def _means(metrics: SequenceStore) -> Tables:
    """Mean Precision, Recall and F of every head, and of the model, with intervals of width 0."""
    k_in, k_out = (np.asarray(metrics.array(name)[:, 0], np.float64) for name in ("k_in", "k_out"))
    layer, head, n = (axis.ravel().astype(np.int32) for axis in np.indices(k_in.shape[1:]))
    size = n.reshape(k_in.shape[1:]) + 1
    precision, recall = size / (size + k_out), k_in / size
    each = {
        "precision": precision,
        "recall": recall,
        "f_r_max": 2 * precision / (1 + precision),
        "f_r_min": 2 * recall / (1 + recall),
    }
    means = {
        f"{name}{end}": values.mean(axis=0) for name, values in each.items() for end in ("", "_ci_low", "_ci_high")
    }
    same = {
        "query": np.full(n.size, metrics.sizes["key"] - 1, np.int32),
        "sequences": np.full(n.size, len(k_in), np.int32),
    }
    of_heads = {"layer": layer, "head": head, "n": n + 1} | {name: mean.ravel() for name, mean in means.items()}
    of_model = {"n": n + 1, "heads": n + 1} | {
        name: np.resize(mean.mean((0, 1)), n.size) for name, mean in means.items()
    }
    return {
        "selection_means": [rows.batch(same | of_heads)],
        "selection_means_model": [rows.batch(same | of_model).slice(0, k_in.shape[-1])],
    }


def _metrics(sizes: Mapping[str, int], sequence: int) -> dict[str, np.ndarray]:
    """Random metrics of one sequence that break no check: 1 <= k_in <= N, 1 <= k_out <= keys - N, r_min <= r_max.

    Neither the sink nor the last token is ever selected; no sum is longer than s_in, which lies between N a_min_in and
    N a_max_in.
    """
    rng = np.random.default_rng(sequence)
    arrays = {
        spec.name: 1 - rng.random(spec.shape(sizes)[1:], dtype=np.float32)  # never 0, which is no bound
        for spec in SELECTION
        if spec.dtype == "float32"
    }
    shape, n = arrays["r_min"].shape, np.arange(1, sizes["key"])
    n_keys = np.full((sizes["query"], sizes["layer"]), sizes["key"], np.int32)
    largest = 1 + np.maximum.accumulate(arrays["a_max_in"], axis=-1)
    smallest = np.minimum.accumulate(arrays["a_min_in"], axis=-1)
    return arrays | {
        "learned_sink": 1 - arrays["weight_sum"],
        "a_0": np.full_like(largest, np.nan),
        "a_max_in": largest,
        "a_min_in": smallest,
        "s_in": np.maximum.accumulate(largest + (n - 1) * smallest, axis=-1),
        "a_max_out": np.minimum.accumulate(arrays["a_max_out"], axis=-1),
        "precision_upper": 1 - arrays["precision_upper"] / (2 * n + 2),
        "recall_upper": 1 - arrays["recall_upper"] / 2,
        "k_in": rng.integers(1, n + 1, shape, dtype=np.int32),
        "k_out": rng.integers(1, sizes["key"] - n + 1, shape, dtype=np.int32),
        "r_max": arrays["r_min"] + arrays["r_max"],
        "norm_s_without_sink": arrays["norm_s"],
        "norm_s_without_last": arrays["norm_s"],
        "total_rest": arrays["norm_rest"] + arrays["total_rest"],
        "norm_output_without_sink": arrays["norm_output"],
        "norm_output_without_last": arrays["norm_output"],
        "cos_last_p05": quantile_over_ln_n(arrays["cos_last"], 0.05),
        "n_keys": n_keys,
        **_concentration(n_keys[..., None] + 0 * arrays["weight_sum"]),
    }


def _concentration(n_keys: np.ndarray) -> dict[str, np.ndarray]:
    """Heads whose weights and contributions are the same for every key."""
    keys = n_keys.astype(np.int32)
    found = {"largest_deviation": 0 * n_keys}
    for what, top, fewest in (("keys", "top_weight", "n"), ("contributors", "top_contribution", "contributors")):
        found |= {f"entropy_{what}": np.log(n_keys), f"effective_{what}": n_keys, top: 1 / n_keys}
        found |= {f"{fewest}_{percent}": -(-keys * percent // 100) for percent in (50, 90, 99)}
    sink = np.zeros_like(keys)
    found |= dict.fromkeys(("top_key", "top_role", "top_contributor", "top_contributor_role"), sink)
    return found


BENCHMARK = Benchmark(
    "landing",
    full=partial(landing, sequences=64, layers=8, heads=8, context=1024, repeats=5),
    small=partial(landing, sequences=2, layers=2, heads=8, context=256, repeats=3),
)
