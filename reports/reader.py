"""The text reader of a page: the tokens of some sequences, and the keys that every head selects in them.

The data are packed, so that no token is markup; ``templates/reader.js`` shows them.
"""

from itertools import groupby
from typing import Any

from reports.figures import Source
from reports.findings.head_map import PATTERNS, describe_label
from reports.findings.numbers import Row
from reports.rendering import show_text, show_token

MOST_KEYS, MOST_TOKENS = 60_000, 40_000
"""Most keys and tokens of a page, which has at least one sequence."""


def collect_reader(source: Source) -> dict[str, Any] | None:
    """Collect the tokens and keys of as many sequences as a page holds; None if the study has no keys.

    Numbers have three significant digits; what is not seen of tokens is shown by symbols and codes.
    """
    heads = source.ask_query("explorer_heads", n=source.n).rows()
    first = source.ask_study("reader_keys", sequences=1).rows()
    if not first:
        return None
    of_one = sum(len(row["position"]) for row in first)
    length = 1 + max(row["query"] for row in first)
    sequences = max(1, min(MOST_KEYS // of_one, MOST_TOKENS // length))
    keys = source.ask_study("reader_keys", sequences=sequences).rows()
    rows = source.ask_study("opening_tokens", sequences=sequences, positions=length).rows()
    tokens = groupby(rows, key=lambda row: row["sequence"])
    return {
        "tokens": [[show_token(row["token"]) for row in of_sequence] for _, of_sequence in tokens],
        "labels": {f"{row['layer']}.{row['head']}": row["label"] for row in heads},
        "keys": [_shorten(row) for row in keys],
        "patterns": _describe_labels(source),
        "examples": _list_examples(source, sequences),
    }


def _describe_labels(source: Source) -> dict[str, str]:
    """What each head is known to look at, by ``LAYER.HEAD``; only heads with a label."""
    rows = source.ask_study("labels_of_heads").rows()
    heads = groupby(rows, key=lambda row: f"{row['layer']}.{row['head']}")
    return {head: "; ".join(describe_label(row) for row in labels) for head, labels in heads}


def _list_examples(source: Source, sequences: int) -> list[list[Any]]:
    """For each label its meaning, number of heads, and the strongest of these, each with its strongest place."""
    rows = source.ask_study("label_strongest", sequences=sequences).rows()
    places = ("layer", "head", "sequence", "query", "share", "text")
    by_label = {label: list(some) for label, some in groupby(rows, key=lambda row: row["label"])}
    return [
        [
            label,
            meaning,
            by_label[label][0]["heads"],
            [[show_text(_round(row[name])) for name in places] for row in by_label[label]],
        ]
        for label, meaning in PATTERNS.items()
        if label in by_label
    ]


def _shorten(row: Row) -> list[Any]:
    """Sequence, query, layer, head, N and lists of the keys of a head, without the names of the columns."""
    return [_round_all(value) if isinstance(value, list) else value for value in row.values()]


def _round_all(items: list[Any]) -> list[Any]:
    """A list with its numbers rounded; one of whole numbers, such as positions, as it is."""
    return items if items and isinstance(items[0], int) else [_round(item) for item in items]


def _round(value: float | None) -> float | None:
    """A number with three significant digits; a whole one as it is."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
