"""Studies of made-up tensors: all tables are computed by the product, in a second or two, without a model.

Holds ``MadeUp`` and ``warehouse``. What does not belong here: rows written by hand (``tests.sql.hand_made``).
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
import torch

import sql
from dagster_project.analysis import interventions
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS
from dagster_project.assets.landing import build_claims, gather_tables
from dagster_project.assets.tensors import extract_tensors
from dagster_project.study.home import Home
from dagster_project.study.settings import EffectsSettings, Study
from extract.capture.attention import EveryQuery
from extract.capture.buffers import OF_EVERY_QUERY
from extract.effects.policies import LargestKeys, Needs
from geometry.patterns import HIDDEN, count_rows, sum_patterns
from storage.warehouse.connection import locate_database
from storage.warehouse.relations import create_relations, create_tables, derive
from storage.warehouse.rows import build_token_rows
from storage.zarr.arrays import build_tensor_specs
from storage.zarr.sequences import SequenceStore
from tests.shared import make_once

_READ = sql.read_statement  # Reads statements as they are, also while a test has broken one

_CREATE = re.compile("^CREATE (?=MACRO|VIEW)", re.MULTILINE)

KEPT: list[Path] = []  # The folder of the databases that were made; of one run of the tests (`tests.conftest`)

WORDS = list("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class MadeUp:
    """Sizes and texts of a made-up study."""

    study: str = "small"
    model: str = "embedded"  # What the study says; `synthetic` is drawn by `extract.synthetic`, all others here
    corpus: str = "embedded"
    architecture: str = "LlamaForCausalLM"
    weights: str = "trained"
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    context: int = 24
    sequences: int = 4
    first_keys: tuple[int, ...] = ()  # First position each layer sees from the last query; all 0 if empty
    queries: tuple[int, ...] = ()  # Positions of the queries; the last one of the context if empty
    kappas: tuple[float, ...] = (0.5,)
    tokens: tuple[str, ...] = tuple(WORDS)
    versions: tuple[tuple[str, str], ...] = (("torch", "2.13.0"),)
    seed: int = 0
    without: tuple[str, ...] = ()  # Tables that have no row of this study, as those of a feature that it does not use
    twin: "MadeUp | None" = None  # The study of random weights that it is compared with
    effects: bool = False  # Whether heads were replaced, and attended to fewer keys
    drawn: bool = False  # Whether heads were drawn from the assumptions as fitted, at two sizes
    random: bool = False  # Whether weights and value states are noise
    every_query: bool = False  # Whether every position is measured as the query

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

    def build_settings(self) -> Study:
        """The settings of the study."""
        grid = {"head_dim": [4, 8], "n_keys": [16], "n": [1, 4], "beta": [0.5, float("inf")], "draws": 8}
        analysis: dict[str, Any] = {
            "kappas": self.kappas,
            "nulls": {"draws": 1},
            "monte_carlo": grid | {"lambda_sink": [0.2], "rho_0": [0.0]} if self.drawn else None,
            "temperatures": [0.5, 1.0, 2.0],
            "temperature_sequences": 2,
        }
        sizes = {name: getattr(self, name) for name in ("layers", "heads", "kv_heads", "head_dim")}
        synthetic = {"model": "synthetic", "synthetic": sizes}
        return Study.model_validate(
            {
                **(synthetic if self.model == "synthetic" else {"model": "embedded", "corpus": "embedded"}),
                "context_length": self.context,
                "sequences": self.sequences,
                "queries": self.positions,
                "every_query": self.every_query,
                "analysis": analysis,
                "seed": self.seed,
                "twin": self.twin and self.twin.study,
            }
        )


SMALL = MadeUp(effects=True, drawn=True, every_query=True)
"""What tests use that need no particular study: others are made anew, in seconds."""


def warehouse(*studies: MadeUp) -> duckdb.DuckDBPyConnection:
    """A warehouse with these studies, whose tables a test may change: a copy of one that is made once."""
    broken = _list_broken()

    def fill(path: Path) -> None:
        shutil.copy(_find_empty(), path)
        with duckdb.connect(path) as connection:
            _replace(connection, broken)
            for study in studies:
                _add(connection, study, derived_anew=bool(broken or study.without))

    return _open_copy(_make_once(repr((studies, broken)), fill))


def open_empty() -> duckdb.DuckDBPyConnection:
    """A database with all relations, as a test has broken them, and no rows, which it may change."""
    connection = _open_copy(_find_empty())
    _replace(connection, _list_broken())
    return connection


def _find_empty() -> Path:
    """The database of all relations as they are."""

    def create(path: Path) -> None:
        with (
            mock.patch.object(sql, "read_statement", _READ),
            duckdb.connect(path, config={"default_block_size": "16384"}) as connection,
        ):
            create_tables(connection)
            create_tables(connection, "families")
            create_relations(connection, described=False)

    return _make_once("no rows", create)


def _list_broken() -> list[sql.Statement]:
    """The statements that a test has replaced by others, which may not be those of tables."""
    kinds: tuple[sql.StatementKind, ...] = ("macros", "views", "derived")
    read = [(sql.read_statement(kind, name), _READ(kind, name)) for kind in kinds for name in sql.list_names(kind)]
    return [statement for statement, whole in read if statement != whole]


def _replace(connection: duckdb.DuckDBPyConnection, broken: list[sql.Statement]) -> None:
    """Replace macros and views; what reads them looks them up when it is read."""
    for statement in broken:
        if statement.kind != "derived":
            connection.execute(_CREATE.sub("CREATE OR REPLACE ", statement.text))


def _make_once(content: str, make: Callable[[Path], object]) -> Path:
    """The database of this content, made by the first process of a run of the tests that asks for it."""
    if not KEPT:
        KEPT.append(Path(tempfile.mkdtemp()))
    name = sha256(content.encode()).hexdigest()
    return make_once(KEPT[0], name, lambda folder: make(folder / "warehouse.duckdb")) / "warehouse.duckdb"


def _open_copy(made: Path) -> duckdb.DuckDBPyConnection:
    """A database of its own."""
    own = Path(shutil.copy(made, made.with_name(f"{uuid4().hex}.duckdb")))
    try:
        return duckdb.connect(own)
    finally:
        own.unlink()  # what the connection has open lives until it is closed


def _add(connection: duckdb.DuckDBPyConnection, study: MadeUp, *, derived_anew: bool) -> None:
    """Insert the rows of a study, those of derived tables as it landed if nothing that they follow from is another."""
    given = {*sql.list_names("schema")} - {*study.without} - ({*sql.list_names("derived")} if derived_anew else set())
    connection.execute(f"ATTACH '{_find_database(study)}' AS made (READ_ONLY)")
    for name in sorted(given):
        rows = f"SELECT * REPLACE ($study AS study) FROM made.{name}"
        connection.execute(f"INSERT INTO {name} {rows}", {"study": study.study})
    connection.execute("DETACH made")
    if derived_anew:
        derive(connection, study.study)


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Insert rows with the column study."""
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


@lru_cache(maxsize=32)
def tables(study: MadeUp) -> dict[str, pa.Table]:
    """The rows of every table that no other tables imply, with the column ``study``."""
    with duckdb.connect(str(_find_database(study)), read_only=True) as connection:
        names = set(sql.list_names("schema")) - set(sql.list_names("derived")) - set(study.without)
        found = {name: connection.table(name).to_arrow_table() for name in sorted(names)}
    return {name: _rename(rows, study.study) for name, rows in found.items()}


def _find_database(study: MadeUp) -> Path:
    """The database of a study of these sizes."""
    named = replace(study, study=study.study if study.twin or study.random else "made_up", without=())

    def land_made_up(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _make_up(named, Home(Path(folder)), path)

    return _make_once(repr(named), land_made_up)


def _rename(rows: pa.Table, study: str) -> pa.Table:
    """Rows under the name of a study, which need not be one that the product accepts."""
    return rows.set_column(rows.column_names.index("study"), "study", pa.array([study] * len(rows), pa.string()))


def _make_up(study: MadeUp, home: Home, path: Path) -> None:
    """Make a study in a data root, and its database, whose checks are tests of their own."""
    home.prepare()
    if study.twin is not None:
        home.warehouse.mkdir(exist_ok=True)
        shutil.copy(_find_database(study.twin), locate_database(home.warehouse, study.twin.study))
    settings = study.build_settings()
    work = Work(home, study.study, settings, ASSETS)
    if study.model == "synthetic":
        extract_tensors(work)
    else:
        _draw_tensors(home, study)
    for asset in ASSETS:
        if asset.name == "selection_metrics" or asset.tables:
            asset.make(work)
    rows, _ = gather_tables(work)
    rows["tokens"] = build_token_rows(drawn := _draw_tokens(study), ([study.tokens[of] for of in row] for row in drawn))
    with duckdb.connect(shutil.copy(_find_empty(), path)) as connection:
        for table, batches in rows.items():
            _insert(connection, study.study, table, batches)
        for table, batch in _make_up_effects(study) if study.effects else ():
            _insert(connection, study.study, table, [batch])
        derive(connection, study.study)
        for table, batch in [*build_claims(work).rows(connection)]:
            _insert(connection, study.study, table, [batch])


def _insert(connection: duckdb.DuckDBPyConnection, study: str, table: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Insert rows, which have no column ``study`` yet."""
    if held := [*batches]:
        rows = pa.Table.from_batches(held)
        insert(connection, table, rows.append_column("study", pa.array([study] * len(rows), pa.string())))


def _draw_tensors(home: Home, study: MadeUp) -> None:
    """Write the tensor store."""
    described = {"architecture": study.architecture, "quantisation": study.weights}
    provenance = {
        "study": study.study,
        "settings": {"model": {"id": study.model}, "corpus": {"id": study.corpus}, "dtype": "float32"},
        "inputs": {
            "model": {"commit": "0123456789abcdef" * 4, **described},
            "tokenizer": {"start": ["<s>"], "end": []},
            "corpus": {"special_tokens": 0, "lost_characters": 0},
        },
        "versions": {**dict(study.versions), "device": "cpu"},
    }
    axes = {"query": len(study.positions), "layer": study.layers, "head": study.heads, "kv_head": study.kv_heads}
    sizes = {"sequence": study.sequences, **axes, "key": study.context, "head_dim": study.head_dim}
    specs = build_tensor_specs(values="float32", computed="float32", every_query=study.every_query)
    store = SequenceStore.resume(home.tensors(study.study), specs, sizes, provenance)
    tokens = _draw_tokens(study)
    for sequence in store.find_missing():
        rng = np.random.default_rng([study.seed, sequence])
        weights, values = _draw_weights(study, rng), _draw_values(study, rng)
        store.write(
            sequence,
            {
                "attention": weights,
                "values": values,
                "tokens": tokens[sequence],
                "first_key": study.first_key.astype(np.int32),
                "query_position": np.array(study.positions, np.int32),
                "learned_sink": np.zeros(weights.shape[:-1], np.float32),
                "batch": np.array(1, np.int32),
                **_draw_patterns(study, sequence, tokens[sequence]),
                **(_measure_every_query(study, rng, values) if study.every_query else {}),
            },
        )


def _measure_every_query(study: MadeUp, rng: np.random.Generator, values: np.ndarray) -> dict[str, np.ndarray]:
    """What every position selects, with weights of their own, of the value states (layer, kv_head, key, head_dim)."""
    all_queries = replace(study, queries=tuple(range(1, study.context)))
    weights, first_keys = _draw_weights(all_queries, rng), all_queries.first_key
    measured = []
    for layer in range(study.layers):
        of_layer = np.concatenate([[0], first_keys[:, layer]]).astype(np.int64)
        every = EveryQuery.begin(1, study.heads, of_layer)
        of_heads = torch.from_numpy(np.ascontiguousarray(weights[:, layer].swapaxes(0, 1)))
        every.add(torch.from_numpy(values[None, layer]), 0, of_heads, torch.arange(1, study.context))
        measured.append([tensor[0].numpy() for tensor in every.tensors])
    return {name: np.stack([of[at] for of in measured]) for at, name in enumerate(OF_EVERY_QUERY)}


def _draw_patterns(study: MadeUp, sequence: int, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """What heads look at: the first of a layer at the token before, if they are not random; all others at no place."""
    given, rows = torch.from_numpy(tokens), torch.arange(1, study.context)
    shares = torch.from_numpy(np.random.default_rng([study.seed, sequence, 1]).uniform(0.7, 0.8, (study.layers, 1, 1)))
    windows = torch.tensor([study.query + 1 - first for first in study.first_keys or [0] * study.layers])
    back = rows[:, None] - torch.arange(study.context)
    seen = ((back >= 0) & (back < windows[:, None, None])).double()
    uniform = seen / seen.sum(dim=-1, keepdim=True)
    weights = uniform[:, None].repeat(1, study.heads + 1, 1, 1)  # the last head is chance
    if not study.random:
        weights[:, 0] = (1 - shares) * uniform + shares * (back == 1) * seen
    logits = weights.log().clamp(min=HIDDEN)
    counts = count_rows(given.expand(study.layers, -1), torch.arange(study.context) < windows[:, None])
    means = torch.stack([sum_patterns(of_layer, given, rows) for of_layer in logits.float()]) / counts[:, None]
    names = ("head_patterns", "pattern_chance", "pattern_queries")
    return dict(zip(names, (means[:, :-1].numpy(), means[:, -1].numpy(), counts.float().numpy()), strict=True))


def _draw_tokens(study: MadeUp) -> np.ndarray:
    """Indices of ``study.tokens``, (sequence, key); each occurs, if there is room."""
    rng = np.random.default_rng([study.seed, 2**20])
    found: np.ndarray = rng.integers(0, len(study.tokens), (study.sequences, study.context), dtype=np.int32)
    found.flat[: len(study.tokens)] = np.arange(len(study.tokens))[: found.size]
    return found


def _draw_weights(study: MadeUp, rng: np.random.Generator) -> np.ndarray:
    """Softmax weights (query, layer, head, key): shares of sink and last token by kind, a plateau and a rise."""
    _, layer, head = np.indices((len(study.positions), study.layers, study.heads))
    kind = (3 * layer // study.layers + (head % 4 == 3)) % 3
    position, queries = np.arange(study.context), np.array(study.positions)[:, None, None, None]
    seen = (position >= study.first_key[:, :, None, None]) & (position <= queries)
    logits = rng.normal(0, 1.0 if study.random else 0.35, (*kind.shape, study.context))
    if not study.random:
        logits += 2 * np.exp(np.minimum(0, position - queries) / (2 + study.context / 8))
    weights = np.where(seen, np.exp(logits), 0)
    weights /= weights.sum(-1, keepdims=True)
    if not study.random:
        sink, last = np.array([[0.1, 0.05, 0.5], [0.6, 0.0, 0.25]])[:, kind]
        weights *= (1 - sink - last)[..., None]
        weights[..., 0] += np.where(seen[..., 0], sink, 0)
        np.put_along_axis(weights, queries, np.take_along_axis(weights, queries, -1) + last[..., None], axis=-1)
    found: np.ndarray = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return found


def _draw_values(study: MadeUp, rng: np.random.Generator) -> np.ndarray:
    """Value states (layer, kv_head, key, head_dim): alike to their neighbours, and the sink's shorter and apart."""
    shape = (study.layers, study.kv_heads, study.context, study.head_dim)
    values = rng.standard_normal(shape)
    if not study.random:
        for key in range(1, study.context):
            values[..., key, :] += 0.5 * values[..., key - 1, :]
        values[..., 0, :] = (0.3 + 0.2 * rng.random((*shape[:2], 1))) * rng.standard_normal((*shape[:2], shape[3]))
    return values.astype(np.float32)


def _make_up_effects(study: MadeUp) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of tables of effects: losses of four sequences, for two replacements and three policies."""
    rng = np.random.default_rng([study.seed, 2**21])
    layer, head, _ = np.indices((study.layers, study.heads, 2))
    rises = 0.01 * (1 + head) - 0.015 * layer + rng.normal(0, 0.004, (4, layer.size)).reshape(4, *layer.shape)
    settings = EffectsSettings(ablation=("zero", "sink"), sequences=4)
    for at in range(study.layers):
        of_layer = rises[:, at].swapaxes(1, 2)
        losses = [{"plain_loss": 2.0, "loss": 2 + rise, "kl": abs(rise)} for rise in of_layer]
        yield from interventions._build_ablation_rows(settings, losses, at)
    named: list[tuple[str, str, float, Needs]] = [("same_n", "N", 1.0, "weights"), ("elbow", "mean N", 1.2, "weights")]
    named += [("sink_recent", "sink=4", 9.0, "statistics")]
    policies = [
        (share, keys, LargestKeys(name, setting, np.full((study.layers, study.heads), keys), needs=needs))
        for name, setting, _, needs in named
        for share in (0.1, 0.5)
        for keys in (max(1, int(share * study.context)),)
    ]
    shares = np.array([share for share, *_ in policies])
    cost = np.array([factor for _, _, factor, _ in named]).repeat(2) * 0.01 / shares * rng.uniform(0.9, 1.1, (4, 1))
    losses = [{"plain_loss": 2.0, "loss": 2 + one, "kl": one / 2, "keys_kept": shares * study.context} for one in cost]
    yield from interventions._build_sparsified_rows(policies, losses)
