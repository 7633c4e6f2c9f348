"""Claims about the kinds of heads (Figures 7 and 8): labels by the SQL rules, of resampled means over sequences."""

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sql
from dagster_project.steps.sources import Sources
from dagster_project.steps.summaries.claims.parts import SHARE, Estimated, Statistics, count_groups
from geometry.arrays import F64, I64
from geometry.quantities import ROLES
from geometry.statistics.resampling import NOTHING, Resampling, mean_over_heads
from storage.warehouse.rows import BY_HEAD, BY_N, build_batch
from storage.zarr.layers import list_attending_layers, read_layer

STUDY = "study"
"""Name of the study in the database in which the rules are evaluated."""

LEAST_OF_KIND = 2
"""Heads of a kind that its mean layer needs."""

KEYS = ("study", "sequence", "query", "layer", "head")
"""Columns that identify the head of a signature."""

ROWS = 2**18
"""Rows labelled by one query."""

Labels = NDArray[np.str_]
"""The label of every head in every replicate, (H, R + 1)."""


class Kinds:
    """The labels of all heads that attend to two keys or more, in every replicate.

    Memory: 36 · (R + 1) bytes per head.
    """

    def __init__(self, labels: Labels, layers: I64, groups: I64, count: int, statistics: Statistics) -> None:
        """Labels (H, R + 1), and layer and KV group of each head, (H,); ``count`` is the number of layers."""
        self._labels, self._layers, self._groups, self._count = labels, layers, groups, count
        self._statistics = statistics
        self._weights = statistics.resampling.count_head_draws(groups)

    def estimate_claims(self) -> dict[str, Estimated]:
        """The claims by name."""
        present = [int((self._labels[:, 0] == kind).sum()) for kind in ("Retriever", "Mixer", "Reset")]
        several, none = sum(count > 0 for count in present), self._labels[:, 0] == "Other"
        early, deep = self._layers < self._count / 4, self._layers >= self._count / 2
        one = "the model has one layer"
        return {
            "regimes_fit": self._estimate_share(
                self._labels == "Other",
                np.ones(self._layers.size, np.bool_),
                premise=several,
                reason=None if several > 1 or none.mean() > 0.5 else "nearly all heads are of one kind",
            ),
            "resets_early": self._estimate_share(
                self._labels == "Reset", early, reason=None if self._count > 1 else one
            ),
            "mixers_prevail_deep": self._estimate_share(
                self._labels == "Mixer", deep, reason=None if self._count > 1 else one
            ),
            "retrievers_first": self._estimate_difference(),
            "kinds_in_order": self._estimate_order(),
        }

    def _estimate_share(
        self, member: NDArray[np.bool_], among: NDArray[np.bool_], *, premise: float | None = None, reason: str | None
    ) -> Estimated:
        """The share of heads of a kind among some."""
        groups = self._groups[among]
        replicates = mean_over_heads(member[among].astype(np.float64), self._weights[among])
        clusters = count_groups(groups)
        interval = self._statistics.compute_interval(replicates, clusters, SHARE)
        return Estimated(interval, int(among.sum()), clusters, premise, reason)

    def _compute_mean_layer(self, member: NDArray[np.bool_]) -> F64:
        """Mean layer of the heads of a kind, (R + 1,); NaN where none is drawn."""
        layers = np.where(member, self._layers[:, None].astype(np.float64), np.nan)
        return mean_over_heads(layers, self._weights)

    def _estimate_difference(self) -> Estimated:
        """Mean layer of Retrievers minus that of all other heads."""
        retriever = self._labels == "Retriever"
        replicates = self._compute_mean_layer(retriever) - self._compute_mean_layer(~retriever)
        found = int(retriever[:, 0].sum())
        others = retriever.shape[0] - found
        reason = None if self._count > 1 else "the model has one layer"
        if min(found, others) < LEAST_OF_KIND:
            reason = f"there are {found} Retrievers and {others} other heads"
        return self._estimate_layers(replicates, min(found, others), retriever[:, 0], found, reason)

    def _estimate_order(self) -> Estimated:
        """The smaller of the steps in mean layer from Retriever to Reset and from Reset to Mixer."""
        members = {kind: self._labels == kind for kind in ("Retriever", "Reset", "Mixer")}
        first, second, third = (self._compute_mean_layer(member) for member in members.values())
        counts = {kind: int(member[:, 0].sum()) for kind, member in members.items()}
        least = min(counts.values())
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        reason = None if least >= LEAST_OF_KIND else f"there are {listed} heads"
        of_kind = np.any([member[:, 0] for member in members.values()], axis=0)
        return self._estimate_layers(
            np.minimum(second - first, third - second), least, of_kind, sum(counts.values()), reason
        )

    def _estimate_layers(
        self, replicates: F64, least: int, member: NDArray[np.bool_], rows: int, reason: str | None
    ) -> Estimated:
        """An estimate of mean layers; ``least`` heads are of the rarest kind."""
        span, clusters = float(self._count), count_groups(self._groups[member])
        interval = self._statistics.compute_interval(replicates, clusters, (-span, span))
        return Estimated(interval, rows, clusters, float(least), reason)


CLAIMS = ("regimes_fit", "retrievers_first", "resets_early", "mixers_prevail_deep", "kinds_in_order")


def estimate_kind_claims(kinds: Kinds | None) -> dict[str, Estimated]:
    """The claims by name."""
    if kinds is None:
        return dict.fromkeys(CLAIMS, Estimated(NOTHING, reason="no head attends to two keys"))
    return kinds.estimate_claims()


def find_kinds(sources: Sources, connection: duckdb.DuckDBPyConnection, statistics: Statistics) -> Kinds | None:
    """The kinds of a study's heads at the last query; None if no head attends to two keys.

    Parameters
    ----------
    sources
        The study.
    connection
        A database with the tables, macros and views of ``sql``; temporary relations are made there.
    statistics
        The draws.
    """
    labels, layers, groups, begun = [], [], [], 0
    sizes, query = sources.metrics.layers, len(sources.queries) - 1
    keys = sources.metrics.read("n_keys", (slice(None), query)).max(axis=0)  # -1 in layers without attention
    for layer in list_attending_layers(sources.metrics):
        size = sizes[layer]
        if keys[layer] > 1:
            signatures = read_signatures(sources, connection, layer)
            labels.append(label_replicates(signatures, connection, statistics.resampling))
            layers.append(np.full(size.heads, layer))
            groups.append(begun + np.arange(size.heads) // (size.heads // size.kv_heads))
        begun += size.kv_heads
    if not labels:
        return None
    return Kinds(np.concatenate(labels), np.concatenate(layers), np.concatenate(groups), len(sizes), statistics)


def read_signatures(sources: Sources, connection: duckdb.DuckDBPyConnection, layer: int) -> dict[str, NDArray[Any]]:
    """The rows of ``head_signatures`` of one layer at the last query, column by column, each (S, H).

    They are computed by the statement that fills that table, from the columns that it names; those of one layer are in
    memory.
    """
    statement = sql.read_statement("derived", "head_signatures")
    tables = {
        "selection_counts": _read_selections(sources, layer, [name for name in BY_N if name in statement.text]),
        "attention_rows": _read_attention_rows(sources, layer),
        "concentration": _read_concentration(sources, layer),
    }
    for name, rows in tables.items():
        connection.register(f"rows_of_{name}", rows)
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM rows_of_{name}")
    asked = connection.sql(f"FROM ({statement.code}) ORDER BY sequence, head", params={"study": STUDY})
    found = asked.to_arrow_table()
    for name in tables:
        connection.execute(f"DROP VIEW temp.{name}")
        connection.unregister(f"rows_of_{name}")
    heads = sources.metrics.layers[layer].heads
    return {
        name: found[name].to_numpy().astype(np.float64).reshape(-1, heads)
        for name in found.column_names
        if name not in KEYS
    }


def _read_selections(sources: Sources, layer: int, names: list[str]) -> pa.Table:
    """The columns of ``selection_counts`` of one layer at the last query."""
    metrics, query = sources.metrics, len(sources.queries) - 1
    n_keys = int(metrics.read("n_keys", (0, query))[layer])
    shape = (metrics.sizes["sequence"], metrics.layers[layer].heads, n_keys - 1)
    sequence, head, n = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    columns = {name: read_layer(metrics, name, layer, query=query)[..., : n_keys - 1].ravel() for name in names}
    where = {"sequence": sequence, "head": head, "n": n + 1, "n_keys": np.full(n.size, n_keys, np.int32)}
    return _build_table(sources, layer, where | columns)


def _read_attention_rows(sources: Sources, layer: int) -> pa.Table:
    """The columns of ``attention_rows`` of one layer at the last query."""
    metrics, query = sources.metrics, len(sources.queries) - 1
    n_keys = int(metrics.read("n_keys", (0, query))[layer])
    shape = (metrics.sizes["sequence"], metrics.layers[layer].heads)
    sequence, head = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    columns = {name: read_layer(metrics, name, layer, query=query).ravel() for name in BY_HEAD}
    attended = np.full(head.size, n_keys == sources.query + 1)
    where = {"sequence": sequence, "head": head, "n_keys": np.full(head.size, n_keys, np.int32)}
    return _build_table(sources, layer, where | {"sink_attended": attended} | columns)


def _read_concentration(sources: Sources, layer: int) -> pa.Table:
    """The columns of ``concentration`` that signatures have, of one layer at the last query."""
    metrics, query = sources.metrics, len(sources.queries) - 1
    contributors = read_layer(metrics, "effective_contributors", layer, query=query)
    code = read_layer(metrics, "top_contributor_role", layer, query=query).ravel().astype(np.int8)
    sequence, head = (axis.ravel() for axis in np.indices(contributors.shape, dtype=np.int32))
    role = pa.DictionaryArray.from_arrays(pa.array(code, mask=code < 0), list(ROLES))
    where = {"sequence": sequence, "head": head, "effective_contributors": contributors.ravel()}
    return _build_table(sources, layer, where | {"top_contributor_role": role})


def _build_table(sources: Sources, layer: int, columns: dict[str, Any]) -> pa.Table:
    """A table of one layer at the last query."""
    rows = next(iter(columns.values())).size
    constant = {"query": np.full(rows, sources.query, np.int32), "layer": np.full(rows, layer, np.int32)}
    return pa.Table.from_batches([build_batch(constant | columns, study=STUDY)])


def label_replicates(
    signatures: dict[str, NDArray[Any]], connection: duckdb.DuckDBPyConnection, resampling: Resampling
) -> Labels:
    """The label of every head of a layer from its mean signature in every replicate, (H, R + 1).

    Means over sequences are those of ``signature_means``, of the sequences that have a number.
    """
    means = {name: resampling.means(column) for name, column in signatures.items()}
    heads, replicates = next(iter(means.values())).shape
    step = max(1, ROWS // heads)
    parts = [
        _label_means({name: mean[:, first : first + step] for name, mean in means.items()}, connection)
        for first in range(0, replicates, step)
    ]
    return np.concatenate(parts, axis=1)


def _label_means(means: dict[str, F64], connection: duckdb.DuckDBPyConnection) -> Labels:
    """Labels by ``label_heads``, (H, replicates)."""
    shape = next(iter(means.values())).shape
    columns: dict[str, NDArray[Any]] = {name: mean.ravel() for name, mean in means.items()}
    columns["place"] = np.arange(columns["n_keys"].size)
    connection.register("resampled_means", pa.Table.from_batches([build_batch(columns)]))
    connection.execute("CREATE OR REPLACE TEMP VIEW stated_thresholds AS FROM taxonomy_thresholds()")
    found = connection.sql("SELECT label FROM label_heads(resampled_means, stated_thresholds) ORDER BY place")
    labels = np.asarray(found.fetchnumpy()["label"], dtype=np.str_).reshape(shape)
    connection.unregister("resampled_means")
    return labels
