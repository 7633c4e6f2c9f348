"""Tables of made-up models, written as arrays: one of which all that the paper says is true, and departures from it.

Holds only what measures are computed from. What does not belong here: whole studies (``tests.made_up``).
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import sql
from dagster_project.analysis.claims.effects import CONTRASTS, ERROR, RIVALS
from dagster_project.analysis.claims.evidence import PARTS, Evidence, load_parts
from storage.warehouse.relations import create_relations, create_tables

SEQUENCES, LAYERS, HEADS, GROUPS, QUERY = 8, 6, 8, 4, 63
N = np.array([1, 2, 4, 8, 16, 32, 63])
THIRD_OF_N = np.array([0, 0, 0, 1, 1, 2, 2])  # Third of ln N, from N = 2 on, that each N is in

KAPPAS = (0.5, 2.0)
LABELS = ("TTRRRRRR", "TTRRRRRR", "RRRRMMMM", "RMMMMMMM", "MMMMMMMM", "MMMMMMMM")
"""Kinds of the heads of each layer: Retriever, Reset, Mixer, Other."""

KINDS = {"T": "Retriever", "R": "Reset", "M": "Mixer", "O": "Other"}
BY_HEAD, BY_GROUP = ("sequence", "layer", "head"), ("sequence", "layer", "kv_head")
POLICIES = sorted({policy for one, other, *_ in CONTRASTS.values() for policy in (one, other)})
BETTER = {"off_mean_mean": 2} | dict.fromkeys(("elbow", "recall", "error", "same_n_mean", "full_heads_elbow"), 1)
"""Policies that geometry chooses, and how much better they are than the others, in gains."""

Tables = dict[str, dict[str, Any]]


def fill(names: Sequence[str], shape: tuple[int, ...], **columns: Any) -> dict[str, Any]:
    """Columns of one row for each place of an array: its indices where named, and values broadcast to that shape."""
    keys = {name: index for name, index in zip(names, np.indices(shape), strict=True) if name}
    found = {name: np.broadcast_to(value, shape).ravel() for name, value in {**keys, **columns}.items()}
    return {name: array.tolist() if array.dtype == object else array for name, array in found.items()}


def jackknife(of_sequences: np.ndarray) -> np.ndarray:
    """The mean over sequences, and that without each, (S, …) → (S + 1, …); NaN without the only one."""
    whole = of_sequences.mean(axis=0)
    if len(of_sequences) == 1:
        return np.stack([whole, np.full(whole.shape, np.nan)])
    return np.stack([whole, *(np.delete(of_sequences, left, axis=0).mean(axis=0) for left in range(len(of_sequences)))])


def make_tables(
    *,
    sequences: int = SEQUENCES,
    layers: int = LAYERS,
    groups: int = GROUPS,
    sink_times: float = 20,
    deeper: tuple[float, ...] = (1, 1, 1, 1, 1, 1),
    focused: float = 0.7,
    shorter: float | None = None,
    thirds: tuple[float, float, float] | None = (0.92, 0.74, 0.8),
    above_random: tuple[float, float, float] = (0.1, -0.1, 0.0),
    slope: float = 1.0,
    later_noise: float = 0.1,
    first_noise: float = 0.02,
    over_chance: Mapping[str, float] | None = {"recall": 0.3, "specificity": 0.1, "auc": 0.2},
    premise_share: float = 0.8,
    covered: tuple[float, float] = (0.5, 0.98),
    coverage_rows: tuple[int, int] = (500, 40),
    upper_distance: float = 0.03,
    lower_excess: float = 0.3,
    lower_rows: int = 20,
    variation: float = 0.02,
    sink_norm: float = 0.2,
    mae: float = 0.05,
    gain_in_fit: float = 0.2,
    floor: float = 0.01,
    neighbours: float = 0.5,
    sink_over_plateau: float = 200,
    oscillation: float = 0.1,
    r2: float = 0.95,
    fitted: bool = True,
    labels: Sequence[str] = LABELS,
    local: Sequence[int] = (),
    hidden: Sequence[int] = (),
    resting: str = "Reset",
    positive: float = 0.9,
    regimes: Sequence[str] = ("II", "IV"),
    worth: float = 1.0,
    worth_of_error: float = 1.0,
    rivals: float = 1.0,
    gain: float = 0.2,
    loss: float = 0.5,
    last_apart: float | None = 0.01,
    other_query: int = 47,
    effects: bool = True,
    seed: int = 0,
) -> Tables:
    """The tables of a model; without arguments, of one that confirms the paper."""
    rng = np.random.default_rng(seed)
    heads, grouped = (sequences, layers, HEADS), (sequences, layers, groups)

    def scatter(scale: float, shape: tuple[int, ...] = heads) -> np.ndarray:
        return scale * rng.standard_normal(shape)

    rho = np.stack(
        [rng.permutation(np.linspace(-0.1, 0.1, groups)) if groups > 1 else np.zeros(1) for _ in range(layers)]
    )
    rho_0 = rho + scatter(0.002, grouped)
    rising = slope * np.repeat(rho_0, HEADS // groups, axis=2)
    noises = {"first": first_noise, "middle": later_noise, "last": later_noise}
    first, middle, last = thirds or (np.nan, np.nan, np.nan)
    levels = {
        f"{name}_{third}": level + rising + scatter(noises[third])
        for name in ("recall", "specificity")
        for third, level in {"first": first, "middle": middle, "last": last}.items()
    }
    recall = 0.75 + rising + scatter(0.02)
    levels |= {"recall": recall, "specificity": 0.7 + scatter(0.02), "premise_share": premise_share + scatter(0.05)}
    levels |= {name: 0.5 + rising + scatter(0.05) for name in ("precision_excess", "r_min")}
    kv_head = np.arange(HEADS) // (HEADS // groups)
    tables: Tables = {
        "studies": {"sequences": [sequences], "provenance": [_describe_layers(layers, local)]},
        "heads": fill(("layer", "head"), (layers, HEADS), kv_head=kv_head),
        "attention_rows": fill(
            BY_HEAD,
            heads,
            query=QUERY,
            n_keys=QUERY + 1,
            sink_attended=~np.isin(np.arange(layers), hidden)[:, None],
            sink_weight=sink_times / (QUERY + 1) * np.exp(scatter(0.02)) * stretch(deeper, layers)[:, None],
            n_90=np.where(rng.random(heads) < focused, 6, 7),
        ),
        "head_levels": fill(BY_HEAD, heads, query=QUERY, **levels),
        "head_auc": fill(BY_HEAD, heads, query=QUERY, auc=recall**2),
        "selection_counts": _make_counts(sequences, layers, recall),
        "value_scales": fill(BY_GROUP, grouped, query=QUERY, rho_0=rho_0),
        "assumption_norms": fill(("layer", "kv_head"), (layers, groups), cv_of_expected_norm=variation),
        "assumption_norms_by_sequence": fill(
            BY_GROUP,
            grouped,
            cv_within_sequence=variation * np.exp(scatter(0.1, grouped)),
            cv_without_sequence=variation * (1 + scatter(0.01, (sequences, 1, 1))),
            lambda_sink=sink_norm * np.exp(scatter(0.1, grouped)),
        ),
        "cosine_by_distance": fill(("layer", "kv_head"), (layers, groups), distance=1, mean_cosine=neighbours),
        "assumption_similarity": fill(("layer", "kv_head"), (layers, groups), mae=mae),
        "assumption_similarity_by_sequence": fill(
            BY_GROUP,
            grouped,
            mae=mae * np.exp(scatter(0.1, grouped)),
            gain=gain_in_fit + scatter(0.02, grouped),
            floor=floor + scatter(0.01, grouped),
        ),
    }
    weights = jackknife(np.array([sink_over_plateau, oscillation, r2]) * (1 + scatter(0.02, (sequences, 3))))
    for table, rows in (("assumption_weights_model", weights[:1]), ("assumption_weights_by_sequence", weights[1:])):
        numbers = {"p_sink": rows[:, 0] / 1000, "p_base": 1 / 1000, "oscillation": rows[:, 1], "r2_log": rows[:, 2]}
        tables[table] = fill(("sequence" if len(rows) > 1 else "",), (len(rows),), **numbers)
    status = np.array("ok" if fitted else "flat", object)
    tables["assumption_weights_model"] |= fill(("",), (1,), query=QUERY, heads=layers * HEADS, status=status)
    by_kappa = (len(KAPPAS), 2, sequences + 1)
    within = [jackknife(share + scatter(0.004, (sequences, 2))).T for share in covered]
    apart = {
        name: np.moveaxis(jackknife(distance + scatter(0.005, (sequences, len(KAPPAS), 2))), 0, 2)
        for name, distance in {"upper_distance": upper_distance, "lower_excess": lower_excess}.items()
    }
    without = np.array([None, *range(sequences)], object)
    tables["coverage_by_sequence"] = fill(
        ("", "", ""),
        by_kappa,
        kappa=np.array(KAPPAS)[:, None, None],
        metric=np.array(["precision", "recall"], object)[:, None],
        without_sequence=without,
        **dict.fromkeys(("covered", "enveloped"), np.array(within)),
        covered_rows=coverage_rows[0],
        enveloped_rows=coverage_rows[1],
        lower_rows=lower_rows,
        **apart,
    )
    if over_chance:
        shape = (sequences, 2, 3, N.size)
        over = np.array(list(over_chance.values()))[:, None] + scatter(0.02, shape)
        over += np.where(np.array(list(over_chance))[:, None] == "auc", 0.0, np.array(above_random)[THIRD_OF_N])
        names, nulls = np.array(list(over_chance), object), np.array(["random_selection", "shuffled_values"], object)
        tables["separability_by_sequence"] = fill(
            ("sequence", "", "", ""),
            shape,
            query=QUERY,
            measure=names[:, None],
            null_model=nulls[:, None, None],
            n=N,
            null_value=0.5,
            value=0.5 + over,
        )
        tables["separability_model"] = {"query": [QUERY], "heads": [layers * HEADS]}
    if shorter is not None:
        counts = tables["selection_counts"]
        k_in = np.round(counts["k_in"] + shorter * counts["n"]).astype(int)
        _add_query(tables, "attention_rows", QUERY // 2, n_keys=np.full(recall.size, QUERY // 2 + 1))
        _add_query(tables, "selection_counts", QUERY // 2, k_in=k_in)
    kinds = np.array([[KINDS[letter] for letter in row] for row in stretch(labels, layers)], object)
    named = np.where(rng.random(heads) < 0.04, "Other", kinds)
    tables["kinds_by_sequence"] = fill(BY_HEAD, heads, query=QUERY, label=named)
    share = np.where(kinds == resting, 0.8, 0.1)
    tables["head_pattern_means"] = fill(
        ("layer", "head"),
        share.shape,
        text="corpus",
        pattern="sink",
        queries=15,
        share_low=share - 0.05,
        lift=9.0,
        p_holm=1e-6,
    )
    shape = (len(regimes), *heads)
    tables["regimes_by_sequence"] = fill(
        ("", *BY_HEAD),
        shape,
        query=QUERY,
        regime=np.array(regimes, object)[:, None, None, None],
        positive_share=np.clip(positive + scatter(0.05, shape), 0, 1),
    )
    if last_apart is not None:
        tables["query_heads"] = _make_queries(recall, levels["precision_excess"], last_apart, other_query, rng)
        of_thirds = np.stack([levels[f"recall_{third}"] for third in noises], axis=-1)
        selected = of_thirds[..., THIRD_OF_N[:-1]]
        tables["context_heads"] = fill((*BY_HEAD, ""), selected.shape, context=QUERY + 1, n=N[:-1], recall=selected)
    if effects:
        tables |= _make_effects(recall, worth, gain, loss, rng)
        _add_errors(tables, recall.shape, worth_of_error, rivals, rng)
    return tables


def stretch(of_depths: Sequence[Any], layers: int) -> np.ndarray:
    """What some depths have, for so many layers."""
    return np.array(of_depths)[np.arange(layers) * len(of_depths) // layers]


def _describe_layers(layers: int, local: Sequence[int]) -> str:
    """The part of the provenance that says which layers see a window."""
    kinds = ["sliding_attention" if layer in local else "full_attention" for layer in range(layers)]
    return json.dumps({"inputs": {"model": {"layer_kinds": kinds}}})


def _make_counts(sequences: int, layers: int, recall: np.ndarray) -> dict[str, Any]:
    """Counts and cosines of every N: the sum of a head turns from the sink to the last token, sooner in deep layers."""
    shape = (sequences, layers, HEADS, QUERY)
    n = np.arange(1, QUERY + 1)
    turned = np.clip(np.log(n) / np.log(QUERY) + 0.1 * np.arange(layers)[:, None, None], 0, 1)
    k_in = np.round(recall[..., None] * n).astype(int)
    return fill((*BY_HEAD, ""), shape, query=QUERY, n=n, k_in=k_in, cos_sink=1 - turned, cos_last=turned)


def _make_queries(
    recall: np.ndarray, excess: np.ndarray, last_apart: float, other: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Levels at three queries, the last of which is as far from the others in one head as in the next, up or down."""
    queries = np.array([other - 1, other, QUERY])
    sign = np.where(np.arange(HEADS) % 2, 1, -1)[:, None] * (queries == QUERY)
    levels = recall[..., None] + last_apart * sign + 0.01 * rng.standard_normal((*recall.shape, len(queries)))
    measured = {"recall_level": levels, "specificity_level": levels, "precision_excess_level": excess[..., None]}
    return fill((*BY_HEAD, ""), levels.shape, query=queries, n_keys=queries + 1, **measured)


def _add_query(tables: Tables, name: str, query: int, **changed: Any) -> None:
    """Add the rows of another query to a table: those that it has, with these changes."""
    others = tables[name] | changed | {"query": np.full(len(tables[name]["query"]), query)}
    _append(tables, name, others)


def _append(tables: Tables, name: str, rows: Mapping[str, Any]) -> None:
    """Add rows to a table."""
    tables[name] = {column: np.concatenate([values, rows[column]]) for column, values in tables[name].items()}


def _make_effects(recall: np.ndarray, worth: float, gain: float, loss: float, rng: np.random.Generator) -> Tables:
    """Losses without heads, by the rank of their Recall; by another replacement the reverse; and policies' losses."""
    ranks = recall.argsort(axis=2).argsort(axis=2) / recall.shape[2]
    zero = loss * (1 + worth * ranks + 0.2 * rng.standard_normal(recall.shape))
    both = {"kind": np.array(["zero", "mean"], object)[:, None, None, None], "delta_loss": np.stack([zero, -zero])}
    ablation = fill(("kind", *BY_HEAD), (2, *zero.shape), **both)
    better = np.array([BETTER.get(policy, 0) for policy in POLICIES])[:, None]
    losses = 2 + loss * (1 - gain * better + 0.01 * rng.standard_normal((len(recall), len(POLICIES), 2)))
    policies = np.array(POLICIES, object)
    return {
        "head_ablation": {"kind": ["zero"], "delta_loss": [zero.mean(axis=0).max()]},
        "head_ablation_by_sequence": ablation,
        "sparsified_loss": {"policy": ["same_n"], "delta_loss": [loss]},
        "sparsified_loss_by_sequence": fill(
            ("sequence", "policy", "budget"), losses.shape, policy=policies[:, None], budget=[0.1, 0.5], loss=losses
        ),
    }


def _add_errors(tables: Tables, shape: tuple[int, ...], worth: float, rivals: float, rng: np.random.Generator) -> None:
    """Losses of heads that keep 16 keys, by the rank of their error, to which other measures add noise."""
    errors = rng.random(shape[1:])
    ranks = errors.argsort(axis=1).argsort(axis=1) / shape[2]
    losses = 0.001 * (1 + worth * ranks + 0.2 * rng.standard_normal(shape))
    known = {ERROR: errors} | {name: errors + rivals * rng.standard_normal(errors.shape) for name in RIVALS}
    names = np.array(list(known), object)
    tables["head_measures"] = fill(
        ("", "layer", "head"),
        (len(names), *errors.shape),
        measure=names[:, None, None],
        value=np.stack([*known.values()]),
    )
    _append(tables, "head_ablation", {"kind": ["selected"], "delta_loss": [losses.mean(axis=0).max()]})
    of_kind = fill(BY_HEAD, shape, kind=np.array("selected", object), delta_loss=losses)
    _append(tables, "head_ablation_by_sequence", of_kind)


def make_evidence(tables: Tables) -> Evidence:
    """A database with these rows in the tables of ``sql/schema``; columns that are not given are NULL, as is NaN."""
    connection = duckdb.connect()
    connection.execute(_declare())
    for name in tables:
        columns = {column: pa.array(values, from_pandas=True) for column, values in tables[name].items()}
        rows = pa.table(columns)  # noqa: F841 (read by DuckDB)
        connection.execute(f"INSERT INTO {name} BY NAME FROM rows")
    return Evidence(connection)


@cache
def _declare() -> str:
    """The statements that create what measures are computed from, in which every column may be NULL."""
    with duckdb.connect() as connection:
        create_tables(connection)
        create_relations(connection, described=False)
        load_parts(connection, dict.fromkeys(PARTS, ()))
        tables = {name: connection.execute(f"DESCRIBE {name}").fetchall() for name in make_tables()}
    created = [
        f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind, *_ in columns)})"
        for table, columns in tables.items()
    ]
    relations = [sql.read_statement("macros", "label_patterns").text, sql.read_statement("views", "head_labels").text]
    return ";".join([*created, *relations])
