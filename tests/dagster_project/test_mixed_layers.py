"""Studies whose layers differ: of several sizes, one without attention, learned sinks.

Every layer has what it has in a study of that layer alone, and what arrays have room for beyond it is no one's.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from geometry.quantities import PATTERNS, SELECTION
from reports.queries import ask
from storage.warehouse.connection import connect
from storage.warehouse.rows import LANDED
from storage.zarr.arrays import LayerSize, build_tensor_specs
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.storage.studies import MetricArrays

NAME = "mixed"
LAYERS = (LayerSize(4, 2, 16), LayerSize(0, 0, 0), LayerSize(2, 1, 8))
SEQUENCES, KEYS, QUERIES = 3, 24, (15, 23)
WINDOW = 16  # Layer 2 sees so many keys, so that its last query does not see the sink
LEARNED = {2: 0.4}  # What the learned sinks of a layer take
STUDY = Study.model_validate(
    {"model": "embedded", "corpus": "embedded", "context_length": KEYS, "sequences": SEQUENCES, "queries": QUERIES}
)
KINDS = ["full_attention", "linear_attention", "sliding_attention"]
PROVENANCE = {
    "study": NAME,
    "settings": {"model": {"id": "embedded"}, "corpus": {"id": "embedded"}, "dtype": "float32", "values": "float32"},
    "inputs": {"model": {"sha256": "0", "attention": "AttentionInterface", "layer_kinds": KINDS}, "corpus": {}},
    "versions": {"device": "cpu"},
}
Arrays = dict[str, np.ndarray]
SPECS = build_tensor_specs(values="float32", computed="float32", sink_measure=True, probe=True)

OF_HEADS = (
    "assumption_norms",
    "assumption_similarity",
    "assumption_weights",
    "selection_means",
    "bound_means",
    "diagnostics",
    "distance_means",
    "head_levels",
    "attention_by_position",
    "principal_directions",
    "value_directions",
)


def drawn(sequence: int, layer: int, learned: float) -> Arrays:
    """The tensors of one layer of one sequence, without room for others."""
    rng, size = np.random.default_rng([sequence, layer]), LAYERS[layer]
    first = np.array([max(0, query + 1 - WINDOW) if layer == 2 else 0 for query in QUERIES], np.int32)
    attention = np.zeros((len(QUERIES), size.heads, KEYS))
    for row, start, query in zip(attention, first, QUERIES, strict=True):
        row[:, start : query + 1] = rng.dirichlet(np.ones(query + 1 - start), size=size.heads) * (1 - learned)
    values = rng.standard_normal((size.kv_heads, KEYS, size.head_dim)).cumsum(axis=1)
    return {
        "attention": attention.astype(np.float32),
        "values": values.astype(np.float32),
        "learned_sink": np.full(attention.shape[:-1], learned, np.float32),
        "first_key": first,
        "head_patterns": rng.uniform(0.3, 0.9, (size.heads, len(PATTERNS))).astype(np.float32),
        "pattern_chance": rng.uniform(0.1, 0.3, len(PATTERNS)).astype(np.float32),
        "probe_patterns": rng.uniform(0.3, 0.9, (size.heads, len(PATTERNS))).astype(np.float32),
        "probe_chance": rng.uniform(0.1, 0.3, len(PATTERNS)).astype(np.float32),
        "pattern_queries": np.full(len(PATTERNS), KEYS - 1, np.float32),
        "probe_queries": np.full(len(PATTERNS), KEYS - 1, np.float32),
    }


def padded(sequence: int, layers: tuple[int, ...], sizes: dict[str, int]) -> Arrays:
    """The tensors of one sequence of a model of these layers, with the fill where there is nothing."""
    arrays = {spec.name: np.full(spec.shape(sizes)[1:], spec.fill, spec.dtype) for spec in SPECS}
    del arrays["finished"]
    for index, layer in enumerate(layers):
        if not LAYERS[layer].heads:
            continue
        for name, own in drawn(sequence, layer, LEARNED.get(layer, 0)).items():
            has_queries = name in {"attention", "learned_sink", "first_key"}
            of_layer = arrays[name][:, index] if has_queries else arrays[name][index]
            of_layer[tuple(map(slice, own.shape))] = own
    arrays["query_position"][:], arrays["batch"][...] = QUERIES, 1
    arrays["tokens"][:] = np.arange(KEYS) % 7
    return arrays


def measured(root: Path, layers: tuple[int, ...] = (0, 1, 2)) -> Home:
    """A data root with tensors and metrics of a model of some of ``LAYERS``."""
    home, sizes_of = Home(root), [LAYERS[layer] for layer in layers]
    home.prepare()
    most = {"head": "heads", "kv_head": "kv_heads", "head_dim": "head_dim"}
    sizes = {"sequence": SEQUENCES, "query": len(QUERIES), "layer": len(layers), "key": KEYS}
    sizes |= {axis: max(getattr(size, name) for size in sizes_of) for axis, name in most.items()}
    store = SequenceStore.resume(home.tensors(NAME), SPECS, sizes, PROVENANCE, sizes_of)
    for sequence in range(SEQUENCES):
        store.write(sequence, padded(sequence, layers, sizes))
    making.measure(home, NAME, STUDY)
    return home


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which a study of all layers has landed."""
    home = measured(tmp_path_factory.mktemp("mixed"))
    making.summarise(home, NAME, STUDY)
    found = making.land(home, NAME, STUDY)
    assert found.published, found.violations
    return home


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Home]:
    """For each layer with attention, a study of that layer alone, with its tables of heads."""
    homes = {layer: measured(tmp_path_factory.mktemp(f"layer-{layer}"), (layer,)) for layer in (0, 2)}
    for home in homes.values():
        making.summarise(home, NAME, STUDY, [asset.name for asset in SUMMARIES if {*asset.tables} & {*OF_HEADS}])
    return homes


def metrics_of(home: Home) -> MetricArrays:
    return making.open_metrics(home, NAME, STUDY)


def asked(home: Home, query: str) -> list[dict[str, Any]]:
    with closing(connect(home.warehouse)) as connection:
        found: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return found


def summary(home: Home, table: str) -> list[dict[str, Any]]:
    return making.rows(home, NAME, table)


@pytest.mark.slow
def test_a_layer_has_what_it_has_alone(mixed: Home, alone: dict[int, Home]) -> None:
    """Bit for bit; and nothing stands where a layer has nothing."""
    found = metrics_of(mixed)
    assert found.layers == LAYERS
    for layer, home in alone.items():
        single = metrics_of(home)
        for name in SELECTION:
            np.testing.assert_array_equal(found.read_layer(name, layer), single.read_layer(name, 0), err_msg=name)
    parts = Path(str(found.metrics.folder)).glob("layer-*")
    assert {part.name[:9] for part in parts} == {"layer-000", "layer-002"}, "nothing of a layer without attention"
    for table in LANDED:
        axis = "kv_head" if table in {"value_scales", "sink_similarity"} else "head"
        found_rows = pa.Table.from_batches(found.metrics.stream(table)).select(["layer", axis])
        heads = {(row["layer"], row[axis]) for row in found_rows.to_pylist()}
        own = {layer: size.kv_heads if axis == "kv_head" else size.heads for layer, size in enumerate(LAYERS)}
        assert heads == {(layer, head) for layer, number in own.items() for head in range(number)}, table


@pytest.mark.slow
@pytest.mark.parametrize("table", OF_HEADS)
def test_a_table_of_heads_has_the_rows_of_each_layer(mixed: Home, alone: dict[int, Home], table: str) -> None:
    found = summary(mixed, table)
    assert {row["layer"] for row in found} == {0, 2}
    for layer, home in alone.items():
        rows = [row | {"layer": 0} for row in found if row["layer"] == layer]
        assert repr(rows) == repr(summary(home, table))  # NaN is as good as itself


def test_the_model_is_all_heads_there_are(mixed: Home) -> None:
    (similar,) = summary(mixed, "assumption_similarity_model")
    assert similar["kv_heads"] == 3
    metrics = metrics_of(mixed)
    rho = [metrics.read_layer("rho_0", layer).ravel() for layer in (0, 2)]
    assert similar["rho_0"] == pytest.approx(np.mean(np.concatenate(rho)), rel=1e-6)
    weights = {row["query"]: row for row in summary(mixed, "assumption_weights_model")}
    assert {query: row["heads"] for query, row in weights.items()} == dict.fromkeys(QUERIES, 6)
    means = asked(mixed, "FROM selection_means")
    for row in summary(mixed, "selection_means_model"):
        own = [mean["recall"] for mean in means if (mean["query"], mean["n"]) == (row["query"], row["n"])]
        assert row["heads"] == len(own) == (6 if row["n"] < WINDOW else 4)
        assert row["recall"] == pytest.approx(np.mean(own))
    effect = {row["heads"] for row in summary(mixed, "sink_effect") if row["query"] == QUERIES[-1]}
    assert effect == {4}  # the last query sees the sink in layer 0 alone


def test_learned_sinks_are_told(mixed: Home) -> None:
    rows = asked(mixed, "SELECT layer, learned_sink, weight_sum FROM attention_rows")
    assert len(rows) == SEQUENCES * len(QUERIES) * 6
    for row in rows:
        taken = LEARNED.get(row["layer"], 0)
        assert (row["learned_sink"], row["weight_sum"]) == pytest.approx((taken, 1 - taken), abs=1e-6)
    with closing(connect(mixed.warehouse)) as connection:
        found = ask(connection, "learned_sinks", study=NAME, query=QUERIES[-1]).rows()
    assert [(row["layer"], row["head"]) for row in found] == [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1)]
    assert [row["mean_learned_sink"] for row in found] == pytest.approx([0] * 4 + [0.4] * 2)
