"""The folder that HeadVis (anthropics/headvis) and Neuronpedia's importer read, with examples of every head.

Its files, as the docstrings of ``data_pipeline.py`` of HeadVis define them:

- ``config.json``: the model, its heads, the metrics, and in ``pipeline_config`` what was read and how, of which the
  importer needs ``n_sequences``, ``seq_len``, ``dtype`` and ``attn_implementation``;
- ``scatter_data.json``: one row for each head with all metrics;
- ``heads/L{layer}H{head}.json``: examples with the largest weights of each query, and histograms;
- ``server_config.json`` and ``attributions/manifest.json``: empty, for no server and no attributions.

L is the number of layers, H of heads in each, S of sequences, K of tokens in each.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64, I64
from geometry.statistics.intervals import DIFFERENCE, POSITIVE, SHARE, Domain, estimate_mean
from reports.queries import ask

INTERVALS = 5  # Most intervals of the largest weight, of as many sequences each, from which examples are taken
OF_THE_TOP, OF_ANOTHER = 10, 3  # Examples of the highest interval, and of each other
BINS = 50  # Bins of the histogram of largest weights
TOP_TOKENS = 50  # Tokens of each list
DECIMALS = 4  # Digits of weights after the point, as HeadVis asks for

FILES = re.compile(r"(config|scatter_data|server_config|attributions/manifest|heads/L\d+H\d+)\.json")
"""Names of the files of a folder."""

DESCRIPTIONS = {
    "self_attention_score": "Mean weight of a query on itself, over all queries.",
    "prev_token_score": "Mean weight on the token before the query, over all queries but the first.",
    "pattern_entropy": "Mean entropy of the weights of a query in nats, over all queries.",
    "qk_distance": "Mean distance of a key from its query in tokens, weighted by the weights of all queries.",
    "qk_distance_variance": "Variance of that distance over all queries.",
    "induction_score": "Mean weight on the tokens that followed earlier copies of the query's token, over the queries "
    "that have one; weights below 0.01 count as 0.",
    "recall_last_query": "Recall R(r_min, N) at the last query, mean over ln N, N from 2 on.",
    "specificity_last_query": "Share of the keys left out that are farther from s_N than r_max, at the last query, "
    "mean over ln N, N from 2 on.",
    "recall_every_query": "Recall R(r_min, N), mean over ln N at the powers of √2 and over the queries of at least 32 "
    "keys.",
    "specificity_every_query": "Share of the keys left out that are farther from s_N than r_max, mean over the same.",
    "auc_above_shuffled": "Probability that a selected key is nearer to s_N than one left out, minus the same with "
    "value states permuted among the keys, at N = 4 and the last query.",
    "rho_0": "Mean cosine between the value state of position 0 and the others.",
    "sink_share": "Mean weight on position 0, over the queries that see it.",
}
"""What each metric is."""

ENDS = {"low": "Lower", "high": "Upper"}  # The ends of an interval, in names and in words

LEVELS: dict[str, Domain] = {"recall_last_query": SHARE, "specificity_last_query": SHARE, "rho_0": DIFFERENCE}
"""Columns of ``head_levels_by_sequence``, and the ranges of their values."""

Places = Sequence[tuple[int, int]]  # Layer and number of heads

Columns = Mapping[str, F64]  # Values of each metric in the order of the heads, (heads,); NaN where it does not exist

LAYOUT = {
    "head_data_pattern": "L{layer}H{head}.json",
    "has_umap": False,
    "umap_heads": [],
    "custom_plots": [
        {"key": "qk_distance_histogram", "label": "Weight in the examples by distance of the key from its query"},
        {"key": "histogram", "label": "Sequences by their largest weight"},
    ],
    "custom_tables": [
        {"key": "top_query_tokens", "label": "Queries of the examples by weight kept"},
        {"key": "top_key_tokens", "label": "Keys of the examples by weight kept"},
    ],
    "statistics_display": {
        "n_samples": {"label": "Examples", "format": "default"},
        "mean_max_activation": {"label": "Mean largest weight of a sequence", "format": "default"},
    },
}
"""Fields of ``config.json`` that are always the same."""


def encode_example(
    sequence: int, interval: int, tokens: Sequence[str], places: I64, weights: NDArray[np.float32], largest: float
) -> bytes:
    """The largest weights of every query of a head in one sequence, as a line of JSON.

    interval: of the largest weight, from 1, the lowest; tokens: texts of the K tokens; places: of each weight, q · K +
    k, ascending; largest: largest weight but those of the query and of the key at position 0.
    """
    content = {
        "sequence_id": sequence,
        "interval": interval,
        "tokens": tokens,
        "attention_indices": places.tolist(),
        "attention_values": _round(weights),
        "seq_len": len(tokens),
        "max_activation": round(largest, DECIMALS),
    }
    return _encode(content)


def choose_examples(sequences: int) -> I64:
    """The interval of each rank of the largest weight, from 0, the lowest, if it is an example's; otherwise 0, (S,).

    Intervals have equally many ranks. Examples are the highest ranks of the highest interval, and ranks at equal
    distances of the others.
    """
    count = min(INTERVALS, sequences)
    intervals, chosen = 1 + np.arange(sequences) * count // sequences, np.zeros(sequences, np.int64)
    for interval in range(1, count + 1):
        (ranks,) = np.nonzero(intervals == interval)
        between = ((np.arange(OF_ANOTHER) + 0.5) * len(ranks) / OF_ANOTHER).astype(int)
        chosen[ranks[-OF_THE_TOP:] if interval == count else ranks[between]] = interval
    return chosen


def rank_sequences(largest: F64) -> I64:
    """The rank of each sequence among those of its head, from 0, the lowest; both (S, L, H)."""
    ranks: I64 = largest.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return ranks


def average_rows(sums: F64, matched: I64, keys: int) -> Columns:
    """The metrics of HeadVis, each (heads,), and the ends of the intervals of those that are means over sequences.

    Parameters
    ----------
    sums
        Sums over the rows of each sequence, in the order of ``extract.effects.rows.SUMMED``, (S, heads, 6).
    matched
        Number of queries of each sequence whose token has occurred before, (S,).
    keys
        K.
    """
    own, previous, entropy, distance, squared, induction = np.moveaxis(sums, -1, 0)
    mean = distance.mean(axis=0) / keys
    with np.errstate(invalid="ignore"):  # no token occurs twice
        copied = induction.sum(axis=0) / matched.sum()
    return {
        **estimate_mean(own / keys, SHARE).name_ends("self_attention_score"),
        **estimate_mean(previous / (keys - 1), SHARE).name_ends("prev_token_score"),
        **estimate_mean(entropy / keys, POSITIVE).name_ends("pattern_entropy"),
        **estimate_mean(distance / keys, POSITIVE).name_ends("qk_distance"),
        "qk_distance_variance": squared.mean(axis=0) / keys - mean**2,
        "induction_score": copied,
    }


def read_estimates(connection: duckdb.DuckDBPyConnection, study: str, places: Places) -> Columns:
    """What the tables of a study say of each head, (heads,), with the ends of intervals; NaN where there is none."""
    at = {place: index for index, place in enumerate(places)}
    columns: dict[str, F64] = {}
    by_sequence = ask(connection, "head_levels_by_sequence", study=study).rows()
    sequences = {sequence: index for index, sequence in enumerate(sorted({row["sequence"] for row in by_sequence}))}
    for name, domain in LEVELS.items():
        levels = np.full((len(sequences), len(places)), np.nan)
        for row in by_sequence:
            levels[sequences[row["sequence"]], at[row["layer"], row["head"]]] = row[name]
        columns |= estimate_mean(levels, domain).name_ends(name)
    for row in ask(connection, "head_estimates", study=study).rows():
        for end, value in (("", row["value"]), ("_low", row["low"]), ("_high", row["high"])):
            column = columns.setdefault(row["measure"] + end, np.full(len(places), np.nan))
            column[at[row["layer"], row["head"]]] = value
    return columns


def write_tables(folder: Path, places: Places, columns: Columns, about: Mapping[str, Any]) -> list[str]:
    """Write all files but those of heads; return the metrics that are left out, because no head has them.

    ``about`` has the fields of ``config.json`` that say what was read, and how.
    """
    kept = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    rows = [
        {"layer": layer, "head": head}
        | {name: None if np.isnan(column[index]) else float(column[index]) for name, column in kept.items()}
        for index, (layer, head) in enumerate(places)
    ]
    rows.sort(key=lambda row: list(row.values()).count(None))  # HeadVis offers the metrics that the first row has
    left_out = [name for name in DESCRIPTIONS if name not in kept]
    config = {
        "heads": places,
        "metrics": list(kept),
        "metric_descriptions": {name: _describe(name) for name in kept},
        **LAYOUT,
        **about,
    }
    contents = {"config": config, "scatter_data": rows, "server_config": {}, "attributions/manifest": {}}
    for name, content in contents.items():
        (folder / f"{name}.json").parent.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_bytes(_encode(content))
    return left_out


def write_head(path: Path, examples: Iterable[bytes], names: Sequence[Sequence[str]], largest: F64) -> None:
    """Write the file of a head from its examples, each a line of JSON.

    Parameters
    ----------
    names
        What to call each token of each sequence, (S, K).
    largest
        Largest weight of each sequence, (S,).
    """
    sequences = sorted(map(json.loads, examples), key=lambda one: (one["interval"], -one["max_activation"]))
    counts, edges = np.histogram(np.minimum(largest, 1), BINS, (0, 1))  # by rounding a weight may exceed 1
    content = {
        "sequences": sequences,
        "qk_distance_histogram": _count_distances(sequences),
        **_rank_tokens(sequences, names),
        "histogram": {"bin_edges": _round(edges), "bin_values": counts.tolist()},
        "statistics": {"n_samples": len(sequences), "mean_max_activation": round(float(largest.mean()), DECIMALS)},
    }
    path.write_bytes(_encode(content))


def _count_distances(sequences: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Histogram of the distances of keys from their queries in the examples, weighted by the weights."""
    keys = max(one["seq_len"] for one in sequences)
    edges = [0, *(2**power for power in range(keys.bit_length() + 1))]
    total = np.zeros(len(edges) - 1)
    for one in sequences:
        query, key = np.divmod(np.array(one["attention_indices"]), one["seq_len"])
        total += np.histogram(query - key, edges, weights=one["attention_values"])[0]
    return {"bin_edges": edges, "bin_values": _round(total)}


def _rank_tokens(sequences: Sequence[Mapping[str, Any]], names: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The tokens of largest weight in the examples, as queries and as keys."""
    totals: dict[str, Counter[str]] = {"top_query_tokens": Counter(), "top_key_tokens": Counter()}
    for one in sequences:
        of_sequence = names[one["sequence_id"]]
        for place, weight in zip(one["attention_indices"], one["attention_values"], strict=True):
            for total, position in zip(totals.values(), divmod(place, one["seq_len"]), strict=True):
                total[of_sequence[position]] += weight
    return {
        name: [{"token": token, "weight": round(weight, DECIMALS)} for token, weight in total.most_common(TOP_TOKENS)]
        for name, total in totals.items()
    }


def _describe(name: str) -> str:
    """What a metric or an end of its interval is."""
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name]
    metric, _, end = name.rpartition("_")
    return f"{ENDS[end]} end of the 95 % interval of {metric} over sequences."


def _round(values: NDArray[Any]) -> list[float]:
    """Numbers of few digits, rounded in float64, since those of float32 have many."""
    rounded: list[float] = np.round(values.astype(np.float64), DECIMALS).tolist()
    return rounded


def _encode(content: Any) -> bytes:
    """Encode one line of JSON, in which texts are as they are and every number is finite."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n"
