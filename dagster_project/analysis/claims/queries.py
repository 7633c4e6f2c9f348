"""Heads at every query of a text: what claims about heads read there, and whether the last query is like the others."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples, Scale
from geometry.arrays import F64
from geometry.statistics.intervals import DIFFERENCE, SHARE, UNBOUNDED, Domain, estimate_mean
from sql.columns import OF_QUERIES

LEAST_KEYS = 32  # Keys of the queries that are averaged: with fewer, levels are means over few N

EVERY = "_at_every_query"
"""Ends the name of a measure that averages all queries, of one that has the last alone and is judged without them."""

MOST_APART = 0.05  # Largest typical distance of two levels that are said to be alike

SQUARE = Scale(lambda root: root * root, lambda square: np.sign(square) * np.sqrt(np.abs(square)))
"""The square of a root mean square; estimates without the share of chance may be below 0."""

LABELS = {"recall": "Recall", "specificity": "specificity"}

DOMAINS: dict[str, Domain] = {
    quantity.name: (
        0.0 if isinstance(quantity.low, str) else quantity.low,
        np.inf if isinstance(quantity.high, str) else quantity.high,
    )
    for quantity in OF_QUERIES
    if quantity.name not in {"n_keys", "top_position"}
}
"""The columns of ``query_heads`` that are averaged."""

_OF = f"the mean over ln N of {{}} at the last query {{}} its mean over the others that see {LEAST_KEYS} keys"

MEASURES = {
    **{
        f"{name}_last_apart": Measure(
            f"root mean square over heads of the distance of {_OF.format(label, 'from')}, without what the spread over "
            "sequences adds to it",
            f"typical distance of {label}",
            SHARE,
            SQUARE,
        )
        for name, label in LABELS.items()
    },
    **{
        f"{name}_last_difference": Measure(f"mean over heads of {_OF.format(label, 'minus')}", label, DIFFERENCE)
        for name, label in LABELS.items()
    },
}


def pair_measures(measures: Mapping[str, Measure], *names: str) -> dict[str, Measure]:
    """Measures of heads at the last query and, under another name, the same of every query."""
    over = f"{{}}, each the mean over the queries of a sequence that see {LEAST_KEYS} keys"
    return {
        name + end: replace(measures[name], meaning=meaning.format(measures[name].meaning), label=label)
        for name in names
        for end, meaning, label in (
            ("", "{}, at the last query", f"{measures[name].label} at the last query"),
            (EVERY, over, f"{measures[name].label} over all queries"),
        )
    }


@lru_cache(maxsize=1)  # claims of several subjects read it
def read_levels(evidence: Evidence) -> Mapping[str, F64]:
    """Means over ln N by head and sequence, over its queries, (S, H): Recall, also by thirds, and excess Precision.

    Thirds are those of ln N, from N = 2 to the most keys of a class of context size, of queries that see more than
    ``LEAST_KEYS``; each class counts as often as it has queries. NaN without every query.
    """
    thirds = ", ".join(
        f"sum(queries * recall) FILTER (third = {place}) / sum(queries) FILTER (third = {place}) AS recall_{third}"
        for place, third in enumerate(("first", "middle", "last"))
    )
    return evidence.ask_heads(
        f"""
        WITH classes AS (
            SELECT sequence, layer, head, (2 ** ceil(log2(n_keys)))::INTEGER AS context, count(*) AS queries,
                max(n_keys) - 0.5 AS most
            FROM query_heads
            WHERE n_keys > {LEAST_KEYS}
            GROUP BY ALL
        ),
        points AS (
            SELECT sequence, layer, head, context, queries, recall, floor(3 * ln(n / 1.5) / ln(most / 1.5)) AS third,
                ln(coalesce(lead(n) OVER larger * n, most ** 2) / coalesce(lag(n) OVER larger * n, 1.5 ** 2)) AS weight
            FROM context_heads
            JOIN classes USING (sequence, layer, head, context)
            WHERE n > 1
            WINDOW larger AS (PARTITION BY sequence, layer, head, context ORDER BY n)
        ),
        of_classes AS (
            SELECT sequence, layer, head, queries, third, sum(weight * recall) / sum(weight) AS recall
            FROM points
            GROUP BY sequence, layer, head, context, queries, third
        ),
        of_thirds AS (SELECT sequence, layer, head, {thirds} FROM of_classes GROUP BY sequence, layer, head),
        levels AS (
            SELECT sequence, layer, head, avg(recall_level) AS recall, avg(precision_excess_level) AS precision_excess
            FROM query_heads
            WHERE n_keys >= {LEAST_KEYS}
            GROUP BY sequence, layer, head
        )
        SELECT * FROM levels LEFT JOIN of_thirds USING (sequence, layer, head)
        """
    )


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name; none without every query."""
    columns, samples = _read_sequences(evidence), {}
    for name in LABELS:
        apart = columns[f"{name}_level_apart"]
        apart = apart[:, ~np.isnan(apart).any(axis=0)]
        heads = apart.shape[1]
        if heads:
            samples[f"{name}_last_difference"] = Sample(apart.mean(axis=1), heads)
        if heads and len(apart) > 2:
            without = [average_squares(np.delete(apart, left, axis=0)) for left in range(len(apart))]
            samples[f"{name}_last_apart"] = Sample.of_jackknife(average_squares(apart), without, heads)
    return samples


def average_squares(apart: F64) -> float:
    """Mean over heads of the square of a mean over sequences, (S, H), S ≥ 2, without bias.

    Of products of two different sequences only, whose errors are independent: the mean square of noise is 0.
    """
    products = apart.sum(axis=0) ** 2 - (apart**2).sum(axis=0)
    return float(products.mean() / (len(apart) * (len(apart) - 1)))


def list_rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """The rows of ``query_means``: every head that has a query with so many keys, by measure."""
    columns, places = _read_sequences(evidence), zip(evidence.heads["layer"], evidence.heads["head"], strict=True)
    estimates = {
        name: (
            (~np.isnan(columns[f"{name}_mean"])).sum(axis=0),
            estimate_mean(columns[f"{name}_mean"], domain).name_ends("mean")
            | estimate_mean(columns[f"{name}_apart"], UNBOUNDED).name_ends("last_difference"),
        )
        for name, domain in DOMAINS.items()
    }
    for at, (layer, head) in enumerate(places):
        for name, (sequences, ends) in estimates.items():
            if sequences[at]:
                place = {"layer": int(layer), "head": int(head), "measure": name, "sequences": int(sequences[at])}
                yield place | {end: float(column[at]) for end, column in ends.items()}


def _read_sequences(evidence: Evidence) -> dict[str, F64]:
    """By head and sequence, (S, H): the mean of every measure, and the last query minus the mean of the others."""
    numbers = (
        f"avg({name}) AS {name}_mean, "
        f"avg({name}) FILTER (WHERE query = $query) - avg({name}) FILTER (WHERE query <> $query) AS {name}_apart"
        for name in DOMAINS
    )
    return evidence.ask_heads(
        f"""
        SELECT sequence, layer, head, {", ".join(numbers)}
        FROM query_heads
        WHERE n_keys >= {LEAST_KEYS}
        GROUP BY sequence, layer, head
        """
    )


def _explain_no_queries(evidence: Evidence) -> str | None:
    rows = "SELECT count(*) FROM query_heads"
    if evidence.count(f"{rows} WHERE n_keys >= {LEAST_KEYS} AND query <> $query"):
        return None
    return f"no query but the last sees {LEAST_KEYS} keys" if evidence.count(rows) else "the study has no every_query"


CLAIMS = (
    Claim(
        "last_query_like_others",
        "Section 4",
        "What a head selects at the last token stands for what it selects in the text",
        tuple(Part(f"{name}_last_apart", "<=", MOST_APART) for name in LABELS),
        "heads separate at the last query as they do at the others",
        "heads do not separate at the last query as they do at the others",
        "recall-by-n",
        null="noise that hides a difference: the distance must be certain to be small",
        premise=f"every query (every_query), and {LEAST_KEYS} keys at more than one",
        explain_gap=_explain_no_queries,
    ),
)
