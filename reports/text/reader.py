"""The text reader of a page: the tokens of some sequences, what every head measures at them, and the keys it selects.

The data are packed, so that no token is markup; ``templates/reader.js`` shows them.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from geometry.quantities import TOP_KEYS
from reports.elements import shorten
from reports.explorer.figures import MOST_MEASURED, choose_opening, count_readable
from reports.figures import Source
from reports.findings.numbers import Row
from reports.kinds.head_map import PATTERNS, describe_label
from reports.rendering import show_text, show_token
from storage.zarr.arrays import READ_SEQUENCES

MEASURES = {
    "recall_level": "Recall",
    "specificity_level": "specificity",
    "effective_keys": "effective keys",
    "sink_weight": "weight on the sink",
    "error_renormalised_16": "error of 16 keys",
}
"""Columns of ``query_heads`` by which tokens are coloured, as a page names them; from 0 to 1, an error also above."""

COUNTS = ("effective_keys",)  # Those that are numbers of keys, of which equal steps are equal ratios

MOST_KEPT = 280_000
"""Most keys of every query on a page: of so many heads, of which a page that lets people read 3 x 512 tokens has 11."""

LEVELS, STEPS, MISSING, LOWEST = 32, 91, 33, 35
"""Steps of a measure, those of the square root of a weight, and codes of characters: of no value and of the lowest."""

MOST_EXAMPLES = 5  # Most heads that are examples of a label


def collect_reader(source: Source) -> dict[str, Any] | None:
    """Collect the tokens and keys of as many sequences as a page holds; None if the study has no keys.

    Numbers have three significant digits; what is not seen of tokens is shown by symbols and codes.
    """
    heads = source.ask_query("explorer_heads", n=source.n).rows()
    sequences = count_readable(source)
    if not sequences:
        return None
    keys = source.ask_study("reader_keys", sequences=sequences).rows()
    head, example = choose_opening(source)
    measures = _collect_measures(source, sequences, _name_place(head))
    length = source.overview["context_length"] if measures else 1 + max(row["query"] for row in keys)
    rows = source.ask_study("opening_tokens", sequences=sequences, positions=length).rows()
    tokens = groupby(rows, key=lambda row: row["sequence"])
    labels = source.ask_study("labels_of_heads").rows()
    return {
        "tokens": [[show_token(row["token"]) for row in of_sequence] for _, of_sequence in tokens],
        "labels": {_name_place(row): row["label"] for row in heads},
        "keys": [[shorten(some, 3) if isinstance(some, list) else some for some in row.values()] for row in keys],
        "measures": measures,
        "patterns": {place: "; ".join(map(describe_label, some)) for place, some in groupby(labels, key=_name_place)},
        "examples": _list_examples(source, sequences),
        "opening": [head["layer"], head["head"], *((example["sequence"], example["query"]) if example else ())],
    }


def _collect_measures(source: Source, sequences: int, opening: str) -> dict[str, Any] | None:
    """What heads do at every query of some sequences, and their best and worst; None without ``every_query``.

    There is room for some heads, of which the opening one is the first, and for the keys of fewer.
    Of each measure its name, highest value, whether steps are ratios, and a text with a character for each position of
    each sequence of each head: its distance from ``LOWEST`` is the nearest step from the lowest value to the highest.
    """
    length = source.overview["context_length"]
    ordered = [_name_place(row) for row in source.ask_study("reader_heads").rows()]
    ordered.sort(key=lambda place: place != opening)
    most = max(1, MOST_MEASURED // (sequences * length))
    table = source.ask_study("reader_measures", sequences=sequences, places=",".join(ordered[:most])).table
    if not table.num_rows:
        return None
    of_query = zip(table["layer"].to_pylist(), table["head"].to_pylist(), strict=True)
    heads = [f"{layer}.{head}" for layer, head in dict.fromkeys(of_query)]
    columns = {name: table[name].to_numpy().reshape(len(heads) * sequences, length - 1) for name in MEASURES}
    return {
        "heads": heads,
        "columns": [
            [title, length if name in COUNTS else 1, name in COUNTS, quantise(columns[name], length, name in COUNTS)]
            for name, title in MEASURES.items()
        ],
        "lowest": LOWEST,
        "levels": LEVELS,
        "ends": _list_ends(source, set(heads)),
        "keys": _collect_keys(source, min(sequences, READ_SEQUENCES), ordered),
    }


def _collect_keys(source: Source, sequences: int, ordered: Sequence[str]) -> dict[str, Any]:
    """The keys of every query in some sequences of as many of the heads, in order, as a page has room for.

    Of each two texts, with ``TOP_KEYS`` characters for each position of each sequence: how far back the keys are, and
    the nearest steps of the square roots of their weights.
    """
    length = source.overview["context_length"]
    places = ",".join(ordered[: MOST_KEPT // (sequences * length * TOP_KEYS)])
    table = source.ask_study("reader_query_keys", sequences=sequences, places=places).table
    found = list(dict.fromkeys(zip(table["layer"].to_pylist(), table["head"].to_pylist(), strict=True)))
    codes = np.full((2, len(found) * sequences, length, TOP_KEYS), MISSING, np.uint16)
    counts = pc.list_value_length(table["position"]).to_numpy()
    place = np.divmod(np.repeat(np.arange(len(table)), counts), max(1, length - 1))
    rank = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    position, weight = (pc.list_flatten(table[name]).to_numpy() for name in ("position", "weight"))
    codes[0, place[0], place[1] + 1, rank] = LOWEST + place[1] + 1 - position
    codes[1, place[0], place[1] + 1, rank] = LOWEST + np.round(np.sqrt(np.minimum(weight, 1)) * (STEPS - 1))
    texts = codes.reshape(2, len(found), sequences * length * TOP_KEYS).swapaxes(0, 1)
    return {
        "sequences": sequences,
        "steps": STEPS,
        "most": TOP_KEYS,
        "heads": {
            f"{layer}.{head}": [text.tobytes().decode("utf-16-le") for text in of_head]
            for (layer, head), of_head in zip(found, texts, strict=True)
        },
    }


def quantise(values: NDArray[np.floating[Any]], most: int, is_count: bool) -> str:
    """A character for position 0, which is no query, and each of the values of a row (row, query); NaN: ``MISSING``.

    Steps are equal from 0 to 1, higher values being 1; of counts, their logarithms from 1 to ``most`` are.
    """
    shares = np.log(values) / np.log(most) if is_count else values
    with np.errstate(invalid="ignore"):
        steps = LOWEST + np.round(np.clip(shares, 0, 1) * (LEVELS - 1))
    codes = np.pad(np.nan_to_num(steps, nan=MISSING).astype(np.uint8), ((0, 0), (1, 0)), constant_values=MISSING)
    return codes.tobytes().decode("ascii")


def _list_ends(source: Source, heads: set[str]) -> dict[str, list[Any]]:
    """The number of long queries of each head, and lists of the best and the worst: sequence, query, Recall, text."""
    ends: dict[str, list[Any]] = {}
    for row in source.ask_study("reader_examples").rows():
        if (place := _name_place(row)) in heads:
            found = ends.setdefault(place, [row["queries"], [], []])
            around = ["".join(map(show_token, row[side] or ())) for side in ("before", "after")]
            where, token = (row["sequence"], row["query"], shorten(row["recall"], 3)), show_token(row["token"])
            told = [*where, around[0], token, around[1]]
            found[1 if row["is_best"] else 2].append(told)
    return ends


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
            [[show_text(shorten(row[name], 3)) for name in places] for row in by_label[label][:MOST_EXAMPLES]],
        ]
        for label, meaning in PATTERNS.items()
        if label in by_label
    ]


def _name_place(row: Row) -> str:
    return f"{row['layer']}.{row['head']}"
