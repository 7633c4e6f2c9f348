"""Warehouses filled with made-up studies, fast: for tests of reports and for looking at one.

The counts obey the identities of a selection but come from no model; ``geometry`` has nothing to do with them, nor
have the vectors of ``tests.reports.kinds`` behind s_N with the counts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from storage.warehouse.relations import create_relations, create_tables, derive
from tests.reports.kinds import Heads, concentration, draw, geometry, kinds, low_quantiles, outputs
from tests.sql.made_up import summaries

WORDS = list("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Synthetic:
    """Sizes and texts of a made-up study."""

    study: str = "small"
    model: str = "embedded"
    architecture: str = "LlamaForCausalLM"
    weights: str = "trained"
    corpus: str = "embedded"
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context: int = 24
    sequences: int = 3
    first_keys: Sequence[int] = ()
    """First position each layer sees from the last query; all 0 if empty."""
    queries: Sequence[int] = ()
    """Positions of the queries; the last one of the context if empty."""
    kappas: Sequence[float] = (0.5,)
    tokens: Sequence[str] = field(default_factory=lambda: WORDS)
    provenance: dict[str, Any] = field(default_factory=lambda: {"seed": 0, "versions": {"torch": "2.13.0"}})
    seed: int = 0
    without: Sequence[str] = ()
    """Tables that have no row of this study, as those of a feature that it does not use."""
    twin: str | None = None
    """Name of the study of random weights that it is held against."""

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the queries, ascending."""
        return tuple(sorted(self.queries)) or (self.context - 1,)

    @property
    def query(self) -> int:
        """Position of the last query."""
        return self.positions[-1]

    @property
    def first_key(self) -> np.ndarray:
        """First position each layer sees, (query, layer): as many keys from every query as from the last, at most."""
        last = np.array(self.first_keys or [0] * self.layers)
        first: np.ndarray = np.maximum(0, np.array(self.positions)[:, None] - (self.query - last))
        return first

    @property
    def n_keys(self) -> np.ndarray:
        """Keys of each query, (query, layer)."""
        n_keys: np.ndarray = np.array(self.positions)[:, None] + 1 - self.first_key
        return n_keys


def warehouse(*studies: Synthetic) -> duckdb.DuckDBPyConnection:
    """An in-memory warehouse with these studies."""
    connection = duckdb.connect()
    create_tables(connection)
    create_relations(connection)
    for study in studies:
        for table, rows in tables(study).items():
            insert(connection, table, rows)
        derive(connection, study.study)
    return connection


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def tables(study: Synthetic) -> dict[str, pa.Table]:
    """The rows of every table of the warehouse that no other tables imply."""
    rng = np.random.default_rng(study.seed)
    kind = kinds(len(study.positions), study.layers, study.heads)
    heads = draw(kind, study.n_keys, study.first_key == 0, study.sequences, study.seed)
    tokens = _tokens(study, rng)
    skill = rng.uniform(0.5, 4, (1, 1, study.layers, study.heads, 1))
    measured = {
        "studies": _study(study),
        "heads": _heads(study),
        "tokens": tokens,
        "selection_counts": _selection(study, heads, skill, rng),
        "attention_by_position": _attention(study, rng),
        "value_norm_by_position": _norms(study, rng),
        "upper_bounds": _upper_bounds(study),
        "attention_rows": _attention_rows(study, heads),
        "concentration": _concentration(study, heads),
        "value_scales": _value_scales(study, skill[0, 0, ..., 0]),
    }
    return {name: rows for name, rows in (measured | summaries(measured)).items() if name not in study.without}


def _table(study: Synthetic, keep: np.ndarray | None = None, **columns: Any) -> pa.Table:
    arrays = {name: np.ravel(column) for name, column in columns.items()}
    if keep is not None:
        arrays = {name: column[np.ravel(keep)] for name, column in arrays.items()}
    rows = len(next(iter(arrays.values())))
    studies = pa.array([study.study] * rows, pa.string())
    return pa.table({"study": studies} | {name: pa.array(column, from_pandas=True) for name, column in arrays.items()})


def _study(study: Synthetic) -> pa.Table:
    row = {
        "study": study.study,
        "model": study.model,
        "model_name": study.model,
        "architecture": study.architecture,
        "weights": study.weights,
        "revision": "0123456789abcdef" * 4,
        "corpus": study.corpus,
        "corpus_name": study.corpus,
        "context_length": study.context,
        "sequences": study.sequences,
        "layers": study.layers,
        "heads": study.heads,
        "kv_heads": study.kv_heads,
        "head_dim": study.head_dim,
        "dtype": "float32",
        "device": "cpu",
        "twin": study.twin,
        "provenance": json.dumps(study.provenance),
        "format_version": 1,
    }
    table = pa.Table.from_pylist([row])
    return table.set_column(table.column_names.index("twin"), "twin", pa.array([study.twin], pa.string()))


def _heads(study: Synthetic) -> pa.Table:
    layer, head = np.indices((study.layers, study.heads))
    return _table(
        study,
        layer=layer,
        head=head,
        kv_head=head // (study.heads // study.kv_heads),
        head_dim=np.full(layer.shape, study.head_dim),
    )


def _tokens(study: Synthetic, rng: np.random.Generator) -> pa.Table:
    sequence, position = np.indices((study.sequences, study.context))
    token_id = rng.integers(0, len(study.tokens), sequence.shape)
    token_id.flat[: len(study.tokens)] = np.arange(len(study.tokens))[: token_id.size]
    token = np.array(list(study.tokens), dtype=object)[token_id]
    return _table(study, sequence=sequence, position=position, token_id=token_id, token=token)


def _selection(study: Synthetic, heads: Heads, skill: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """Precision and Recall high at N = 1, low in the middle, 1 at the end, each head after its own manner."""
    shape = (study.sequences, len(study.positions), study.layers, study.heads, max(study.query, 1))
    sequence, query, layer, head, n = np.indices(shape, dtype=np.int32)
    n += 1
    n_keys = study.n_keys[query, layer]
    depth = np.log(n) / np.log(np.maximum(n_keys, 2))
    decline = skill * rng.uniform(0.8, 1.25, (*shape[:4], 1)) * depth
    precision = np.clip(0.9 * np.exp(-decline) + np.clip(depth, 0, 1) ** 9, 0.01, 1)
    recall = np.clip(np.exp(-1.4 * decline) + np.clip(depth, 0, 1) ** 14, 0, 1)
    radius = rng.uniform(0.1, 1, shape).astype(np.float32)
    return _table(
        study,
        keep=n < n_keys,
        sequence=sequence,
        query=np.array(study.positions)[query],
        layer=layer,
        head=head,
        n=n,
        n_keys=n_keys,
        k_in=np.where(n == 1, 1, np.rint(recall * n)).astype(np.int32),
        k_out=np.clip(np.rint(n / precision - n), 0, np.maximum(n_keys - n, 0)).astype(np.int32),
        r_min=radius,
        r_max=radius * 1.5,
        **{name: values.astype(np.float32) for name, values in geometry(heads, n[0, 0, 0, 0], study.n_keys).items()},
        **_ingredients(n, n_keys, np.broadcast_to(heads.sink[..., None], shape)),
    )


def _ingredients(n: np.ndarray, n_keys: np.ndarray, sink: np.ndarray) -> dict[str, np.ndarray]:
    """What bounds are made of, as if the keys but the sink had weighted norms of 1 and then 1/2."""
    norm = np.ones(n.shape, np.float32)
    in_j = n - np.isfinite(sink)  # where the query sees the sink, it is selected first
    no_j = np.where(in_j > 0, norm, np.nan)
    return {
        "a_0": sink.astype(np.float32),
        "s_in": no_j * (1 + (in_j - 1) / 2),
        "a_min_in": no_j * np.where(in_j > 1, 0.5, 1),
        "a_max_in": no_j,
        "a_max_out": norm,
        "rho_out": no_j * np.minimum(0.4, 0.02 * n),  # Δ above 0 for few keys, below for many
        "precision_lower_scale_free": np.where(n == 1, 1, n / n_keys).astype(np.float32),
        "recall_lower_scale_free": np.where(n == 1, 1, 0).astype(np.float32),
    }


def _upper_bounds(study: Synthetic) -> pa.Table:
    """Some probabilities between 0 and 1/2; no bounds where nothing but the sink is selected."""
    per_kappa = (study.sequences, len(study.positions), study.layers, study.heads, max(study.query, 1))
    shape = (len(study.kappas), *per_kappa)
    kappa, sequence, query, layer, head, n = np.indices(shape, dtype=np.int32)
    n += 1
    probability = np.random.default_rng([study.seed, 1]).uniform(0, 0.5, shape)
    probability[(n == 1) & (study.first_key == 0)[query, layer]] = np.nan
    return _table(
        study,
        keep=n < study.n_keys[query, layer],
        sequence=sequence,
        query=np.array(study.positions)[query],
        layer=layer,
        head=head,
        n=n,
        kappa=np.array(study.kappas)[kappa],
        scale=np.full(shape, "unit"),
        precision_upper=(1 - probability / (n + 1)).astype(np.float32),
        recall_upper=(1 - probability).astype(np.float32),
    )


def _attention_rows(study: Synthetic, heads: Heads) -> pa.Table:
    sequence, query, layer, head = np.indices(heads.sink.shape)
    n = np.arange(1, max(study.query, 1) + 1, dtype=np.int32)
    cosines = geometry(heads, n, study.n_keys)["cos_last"]
    return _table(
        study,
        sequence=sequence,
        query=np.array(study.positions)[query],
        layer=layer,
        head=head,
        n_keys=study.n_keys[query, layer],
        sink_attended=(study.first_key == 0)[query, layer],
        weight_sum=np.ones(sequence.shape, np.float32),
        learned_sink=np.zeros(sequence.shape, np.float32),
        norm_y_0=heads.sink.astype(np.float32),
        norm_y_last=heads.last.astype(np.float32),
        norm_rest=heads.rest.astype(np.float32),
        total_rest=heads.total_rest.astype(np.float32),
        cos_last_p05=low_quantiles(cosines, n, study.n_keys),
        **{name: values.astype(np.float32) for name, values in outputs(heads, study.n_keys).items()},
    )


def _concentration(study: Synthetic, heads: Heads) -> pa.Table:
    sequence, query, layer, head = np.indices(heads.sink.shape)
    n_keys, first = study.n_keys[query, layer], study.first_key[query, layer]
    position = np.array(study.positions)[query]
    found = concentration(heads, study.n_keys)
    tops = {}
    for top, key in (("top", "top_key"), ("top_contributor", "top_contributor")):
        place = found.pop(key) + first
        tops[f"{top}_position"] = place
        tops[f"{top}_role"] = np.select([place == position, place == 0], ["last", "sink"], "other")
    return _table(study, sequence=sequence, query=position, layer=layer, head=head, n_keys=n_keys, **found, **tops)


def _value_scales(study: Synthetic, skill: np.ndarray) -> pa.Table:
    """The nearer the sink lies to the others, the better Recall is."""
    shape = (study.sequences, len(study.positions), study.layers, study.kv_heads)
    sequence, query, layer, kv_head = np.indices(shape)
    of_kv_heads = skill.reshape(study.layers, study.kv_heads, -1).mean(-1)
    rho_0 = 0.45 - 0.1 * of_kv_heads + np.random.default_rng([study.seed, 3]).normal(0, 0.03, shape)
    alone = (study.first_key > 0) | (study.n_keys == 1)
    return _table(
        study,
        sequence=sequence,
        query=np.array(study.positions)[query],
        layer=layer,
        kv_head=kv_head,
        value_scale=np.ones(shape, np.float32),
        rho_0=np.where(alone[query, layer], np.nan, rho_0).astype(np.float32),
    )


def _attention(study: Synthetic, rng: np.random.Generator) -> pa.Table:
    """A sink, a plateau and a rise towards the query; softmax rows sum to 1."""
    positions = np.array(study.positions)
    shape = (len(positions), study.layers, study.heads, study.context)
    query, layer, head, position = np.indices(shape)
    seen = (position >= study.first_key[query, layer]) & (position <= positions[query])
    logits = rng.normal(0, 0.35, shape) + 5 * np.exp(-np.maximum(positions[query] - position, 0) / 9)
    strength = 5 * rng.beta(2, 2, shape[1:3]) + 2 * (np.arange(study.layers) / study.layers)[:, None]
    logits[..., 0] += strength
    weights = np.where(seen, np.exp(logits), 0)
    weights /= weights.sum(-1, keepdims=True)
    return _table(
        study,
        keep=seen,
        query=positions[query],
        layer=layer,
        head=head,
        position=position,
        sequences=np.full(shape, study.sequences),
        mean_weight=weights.astype(np.float32),
        sd_weight=(weights / 3).astype(np.float32),
    )


def _norms(study: Synthetic, rng: np.random.Generator) -> pa.Table:
    """Even norms, but for a sink of a fifth of them."""
    shape = (study.layers, study.kv_heads, study.context)
    layer, kv_head, position = np.indices(shape)
    norm = rng.uniform(0.8, 1.4, (*shape[:2], 1)) * rng.normal(1, 0.04, shape)
    norm[..., 0] *= rng.uniform(0.1, 0.3, shape[:2])
    return _table(
        study,
        layer=layer,
        kv_head=kv_head,
        position=position,
        sequences=np.full(shape, study.sequences),
        mean_norm=norm.astype(np.float32),
        sd_norm=(norm / 5).astype(np.float32),
    )
