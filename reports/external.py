"""Scores of heads from other tools: reads their files and correlates the scores with the measures of a study.

Such files are written by ``reports.head_files``, and scores are landed by ``storage.warehouse.additions``.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from geometry.arrays import F64, I64
from geometry.statistics.associations import associate, correlate_heads, rank_within
from geometry.statistics.verdicts import correct_holm
from reports.queries import ask
from storage.errors import UserError
from storage.files.user_paths import read_regular_file

FILE_BYTES = 2**25
"""Largest size of a file of scores, in bytes; reading one takes at most about 30 times its size in memory."""

PATTERN = "full_attention_heads.tsv"
"""File of a DuoAttention pattern in its folder."""

_HEAD = re.compile(r"(\d{1,6})-(\d{1,6})")

Place = tuple[int, int]
"""Layer and query head."""


@dataclass(frozen=True)
class Heads:
    """The query heads of a study's model."""

    kv_head: Mapping[Place, int]
    """KV head of each query head, by layer and head."""

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, study: str) -> "Heads":
        """Read those of a landed study.

        Raises
        ------
        UserError
            If the study has not been landed.
        """
        rows = ask(connection, "heads", study=study).rows()
        if not rows:
            msg = f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
            raise UserError(msg)
        return cls({(row["layer"], row["head"]): row["kv_head"] for row in rows})

    def count_kv_heads(self) -> NDArray[np.int64]:
        """Count the KV heads of each layer, (layers,); 0 for layers without attention."""
        counts = np.zeros(1 + max(layer for layer, _ in self.kv_head), np.int64)
        for (layer, _), kv_head in self.kv_head.items():
            counts[layer] = max(counts[layer], kv_head + 1)
        return counts


def read_scores(path: Path, form: str, heads: Heads) -> dict[Place, float]:
    """Read the score of each query head; scores of KV heads are repeated for their query heads.

    Parameters
    ----------
    path
        The file; for ``duo`` a folder with ``full_attention_heads.tsv``, or that file.
    form
        ``duo``, ``retrieval`` or ``csv`` (columns layer, head and score).

    Raises
    ------
    UserError
        If there is no such format or file, or the file is malformed or has heads that the model does not have.
    """
    if form not in READERS:
        msg = f"There is no format '{form}' of scores; choose from {', '.join(READERS)}"
        raise UserError(msg)
    file = path / PATTERN if form == "duo" and path.is_dir() else path
    try:
        text = read_regular_file(file, FILE_BYTES).decode()
    except OSError as error:
        msg = f"The scores {file} cannot be read ({error.strerror}); name a file of the format '{form}'"
        raise UserError(msg) from error
    except UnicodeDecodeError:
        _refuse(file, "it is not text in UTF-8")
    scores = READERS[form](file, text, heads)
    if unknown := sorted(scores.keys() - heads.kv_head.keys()):
        layer, head = unknown[0]
        _refuse(file, f"it has a score of head {head} in layer {layer}, which the model of the study does not have")
    if not scores:
        _refuse(file, "it has no scores")
    if odd := [place for place, score in sorted(scores.items()) if not isfinite(score)]:
        _refuse(file, f"the score of head {odd[0][1]} in layer {odd[0][0]} is not a finite number")
    return scores


def _parse_duo(file: Path, text: str, heads: Heads) -> dict[Place, float]:
    """Parse one line per layer, with one number per KV head, separated by tabs."""
    lines = [line for line in text.splitlines() if line.strip()]
    counts, given = heads.count_kv_heads(), [line.count("\t") + 1 for line in lines]
    if given != counts.tolist():
        most = max(given, default=0)
        _refuse(file, f"it has {len(given)} lines of up to {most} numbers, separated by tabs, but the model has "
                      f"{len(counts)} layers with these numbers of KV heads: {_describe_counts(counts)}")  # fmt: skip
    try:
        scores = [[float(cell) for cell in line.split("\t")] for line in lines]
    except ValueError as error:
        _refuse(file, f"{error}; a pattern has only numbers, separated by tabs")
    return {(layer, head): scores[layer][kv_head] for (layer, head), kv_head in heads.kv_head.items()}


def _describe_counts(counts: NDArray[np.int64]) -> str:
    """Describe the numbers of KV heads of the layers."""
    if (counts == counts[0]).all():
        return f"{counts[0]} in each"
    return ", ".join(map(str, counts.tolist()))


def _parse_retrieval(file: Path, text: str, heads: Heads) -> dict[Place, float]:  # noqa: ARG001 (readers share a signature)
    """Parse a JSON object of lists of scores by "layer-head", and average each list."""
    try:
        content = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        _refuse(file, f"it is not JSON ({' '.join(str(error).split())})")
    if not isinstance(content, tuple):
        _refuse(file, 'it should be an object {"layer-head": [scores]}')
    score_of: dict[Place, float] = {}
    for name, scores in content:
        place = _HEAD.fullmatch(name)
        if place is None:
            _refuse(file, f"'{name[:40]}' should be a layer and a head, as in 3-17")
        if not isinstance(scores, list) or not scores or not all(_is_number(score) for score in scores):
            _refuse(file, f"'{name}' should have a list of at least one number")
        _add_score(file, score_of, (int(place[1]), int(place[2])), _average(scores))
    return score_of


def _average(scores: list[float]) -> float:
    """The mean of scores; NaN if it is not a finite number."""
    try:
        return fmean(scores)
    except (OverflowError, ValueError):  # their sum is too large, or one of them; or they are infinities
        return nan


def _add_score(file: Path, scores: dict[Place, float], place: Place, score: float) -> None:
    """Add the score of a head that has none yet."""
    if place in scores:
        _refuse(file, f"head {place[1]} in layer {place[0]} occurs twice")
    scores[place] = score


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parse_csv(file: Path, text: str, heads: Heads) -> dict[Place, float]:
    """Parse the columns layer, head and score."""
    kinds = {"layer": pa.int64(), "head": pa.int64(), "score": pa.float64()}
    try:
        options = csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
        rows = csv.read_csv(pa.BufferReader(text.encode()), convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        _refuse(file, f"it should have the columns layer, head and score ({' '.join(str(error).split())})")
    scores: dict[Place, float] = {}
    for row in rows.slice(0, len(heads.kv_head) + 1).to_pylist():  # among one more is a head twice, or an unknown one
        if None in row.values():
            _refuse(file, "a layer, head or score is missing")
        _add_score(file, scores, (row["layer"], row["head"]), row["score"])
    return scores


READERS: Mapping[str, Callable[[Path, str, Heads], dict[Place, float]]] = {
    "duo": _parse_duo,
    "retrieval": _parse_retrieval,
    "csv": _parse_csv,
}
"""Reader of each format."""


def _refuse(file: Path, why: str) -> NoReturn:
    """Raise an error that says what is wrong with a file."""
    msg = f"The scores {file} cannot be used: {why}"
    raise UserError(msg)


def correlate_scores(
    connection: duckdb.DuckDBPyConnection, study: str, scores: Mapping[Place, float]
) -> list[dict[str, Any]]:
    """Correlate scores over heads with each measure of a landed study.

    Returns
    -------
    list
        For each measure the rank correlation within layers, the p value of exchanging KV groups within layers and that
        after Holm's correction for all measures, the rank correlation over all heads, and the number of heads that have
        both, the strongest first; None where there is no correlation.
    """
    heads = Heads.of(connection, study)
    places = list(heads.kv_head)
    layer = np.array([place[0] for place in places])
    pairs = [(layer, heads.kv_head[layer, head]) for layer, head in places]
    group = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    given = np.array([[scores.get(place, np.nan) for place in places]])
    measures: dict[str, dict[Place, Any]] = {}
    for row in ask(connection, "measures_of_heads", study=study).rows():
        measures.setdefault(row["measure"], {})[row["layer"], row["head"]] = row["value"]
    rows = []
    for measure, of_heads in sorted(measures.items()):
        values = np.array([[np.nan if (value := of_heads.get(place)) is None else value for place in places]])
        rows.append({"measure": measure, **_correlate(given, values, layer, group), "p_holm": None})
    tested = [row for row in rows if row["p"] is not None]
    for row, p_holm in zip(tested, correct_holm(row["p"] for row in tested), strict=True):
        row["p_holm"] = p_holm
    return sorted(rows, key=lambda row: -abs(row["correlation"] or 0))


def _correlate(given: F64, values: F64, layer: I64, group: I64) -> dict[str, Any]:
    """The correlations of two quantities of heads, (1, heads) each."""
    known = ~(np.isnan(given) | np.isnan(values))
    one, other = (np.where(known, of_heads, np.nan) for of_heads in (given, values))
    association = associate(rank_within(one, layer), rank_within(other, layer), layer, group)
    everywhere = np.zeros_like(layer)
    over_all = correlate_heads(rank_within(one, everywhere), rank_within(other, everywhere))
    numbers = {
        "correlation": np.tanh(association.of_sequences[0]),
        "p": min(1.0, 2 * min(association.p_above, association.p_below)),
        "correlation_over_all": over_all[0],
    }
    return {name: None if np.isnan(number) else float(number) for name, number in numbers.items()} | {
        "heads": int(known.sum())
    }
