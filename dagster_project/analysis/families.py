"""The tables of a family of studies: its quantities over the members, differences, onsets and shared selections.

Members are read one after the other; three of them are in memory at a time, and the means of all.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.sources import Rows
from dagster_project.study.families import Family
from geometry.arrays import F64, I64, Bool
from geometry.statistics.intervals import (
    DIFFERENCE,
    POSITIVE,
    SHARE,
    UNBOUNDED,
    Domain,
    Estimate,
    average_known,
    estimate_difference,
    estimate_mean,
)
from storage.warehouse.connection import locate_database, open_database
from storage.warehouse.rows import build_batch

logger = logging.getLogger(__name__)

SELECTED = 4  # N at which the Recall of each head is followed

KINDS = ("Retriever", "Mixer", "Reset", "Other")

PATTERNS = ("sink", "previous", "local", "duplicate", "induction")
"""Patterns that are followed, over all queries of a sequence; columns of ``head_patterns``."""

SHARED = np.array([1, 2, 3, 4, 6, 8, 11, 16])
"""The N at which selections of two members are compared: up to the keys that ``top_keys`` lists."""

LOSS = "loss"  # The quantity of the model that is its mean next-token cross entropy, where the study replaces heads

RECALL = f"recall[{SELECTED}]"

_LAST = "SELECT sequence, layer, head, {value} AS value FROM {table} WHERE query = $query"
"""A number of each head in each sequence at the last query."""

_TOP_PREVIOUS = """
SELECT sequence, layer, head, avg((top_position = query - 1)::DOUBLE) AS value
FROM attention_rows
GROUP BY ALL
"""

_TOP_INDUCTION = """
WITH copies AS (
    SELECT now.sequence, now.position AS query, list(earlier.position + 1) AS following
    FROM tokens AS now
    JOIN tokens AS earlier USING (sequence, token_id)
    WHERE earlier.position < now.position AND now.position IN (SELECT query FROM attention_rows)
    GROUP BY ALL
)
SELECT sequence, layer, head, avg(list_contains(following, top_position)::DOUBLE) AS value
FROM attention_rows
JOIN copies USING (sequence, query)
GROUP BY ALL
"""

_PATTERN = "SELECT sequence, layer, head, {pattern} AS value FROM head_patterns WHERE text = 'corpus'"
"""A pattern in the study's own text."""

_OF_MODEL = """
SELECT sequence, measure, value, 0 AS rows
FROM measure_values
UNION ALL
SELECT sequence, 'loss', any_value(plain_loss), 0
FROM head_ablation_by_sequence
GROUP BY sequence
"""

_RANKS = ", ".join(f"max(position) FILTER (rank = {rank}) AS key_{rank}" for rank in range(1, int(SHARED[-1]) + 1))

_TOP_KEYS = "SELECT sequence, layer, head, {ranks} FROM top_keys WHERE query = $query GROUP BY ALL"

QUANTITIES: Mapping[str, tuple[str, Domain]] = {
    "sink_weight": (_LAST.format(value="sink_weight", table="attention_rows"), SHARE),
    "effective_keys": (_LAST.format(value="effective_keys", table="attention_rows"), POSITIVE),
    RECALL: (f"{_LAST.format(value='k_in / n', table='selection_counts')} AND n = {SELECTED}", SHARE),
    **{
        f"{kind.lower()}_share": (_LAST.format(value=f"(label = '{kind}')::DOUBLE", table="kinds_by_sequence"), SHARE)
        for kind in KINDS
    },
    "top_previous": (_TOP_PREVIOUS, SHARE),
    "top_induction": (_TOP_INDUCTION, SHARE),
    **{f"pattern_{pattern}": (_PATTERN.format(pattern=pattern), SHARE) for pattern in PATTERNS},
}
"""Quantities of each head in each sequence: the SELECT of their numbers, and their domain.

The shares of top keys are over the measured queries of a sequence, and ``top_induction`` over those whose token occurs
earlier; patterns are mean weights over all queries.
"""

ONSETS: Mapping[str, float] = {
    "sink_weight": 0.3,
    "top_previous": 0.4,
    "top_induction": 0.4,
    **{f"pattern_{pattern}": 0.4 for pattern in PATTERNS},
    "retriever_share": 0.5,
    "mixer_share": 0.5,
    "reset_share": 0.5,
    "recall_over_random": 0.0,
    "auc_over_random": 0.0,
    "recall_over_shuffled": 0.0,
    "auc_over_shuffled": 0.0,
}
"""The quantities whose onset is sought, and the threshold that they have to exceed."""

_FIND_ONSETS = """
WITH points AS (
    SELECT *, max(member) FILTER (value <= threshold) OVER (PARTITION BY quantity, layer, head) AS last_not
    FROM (SELECT *, list_position($members, study) AS member FROM trends)
    JOIN thresholds USING (quantity)
),
places AS (
    SELECT
        quantity, layer, head, threshold, last_not,
        max(member) FILTER (value IS NOT NULL) AS last,
        max(member) FILTER (value_high <= threshold AND member <= last_not) AS below,
        min(member) FILTER (value > threshold AND member > coalesce(last_not, 0)) AS onset,
        min(member) FILTER (value_low > threshold AND member > coalesce(last_not, 0)) AS above
    FROM points
    GROUP BY ALL
),
states AS (
    SELECT *, CASE
        WHEN last_not = last AND below = last THEN 'never'
        WHEN last_not IS NULL AND above = onset THEN 'always'
        WHEN last_not < last AND below IS NOT NULL AND above IS NOT NULL THEN 'appears'
        ELSE 'undecided'
    END AS state
    FROM places
)
SELECT
    quantity, layer, head, threshold, state,
    if(state = 'appears', $members[onset], NULL) AS study,
    if(state = 'appears', $members[below], NULL) AS last_below,
    if(state = 'appears', $members[above], NULL) AS first_above
FROM states
"""


Place = Mapping[str, Any]  # The columns `layer` and, of heads, `head` of some rows

OF_MODEL: Place = {"layer": pa.nulls(1, pa.int16())}


@dataclass(frozen=True)
class Member:
    """A member of a family that has landed."""

    study: str
    tokens: NDArray[np.int64]  # Token ids, (sequences, positions)
    layer: I64
    head: I64  # Layer and number of each head, (heads,)
    of_heads: Mapping[str, F64]  # Each quantity of heads, (sequences, heads); NaN where it does not exist
    of_measures: Mapping[str, F64]  # The numbers of the sequences behind each measure, (sequences,), on its scale
    measures: Mapping[str, tuple[float, float, float, int]]
    """Value, ends of the interval and number of sequences of each measure."""
    claims: tuple[tuple[Any, ...], ...]  # Name, statement, verdict and p value of each claim
    top_keys: I64
    """Keys of largest weight of each head at the last query, (sequences, heads, ranks); -1 beyond those there are."""

    @cached_property
    def levels(self) -> tuple[tuple[str, Place, Mapping[str, F64]], ...]:
        """Heads, layers and the model: the end of their tables, their places, and each quantity, (sequences, places).

        Of layers, and of the model, it is the mean over their heads in each sequence; of the model there are also the
        numbers behind measures.
        """
        layers = np.unique(self.layer)
        of_layers = {
            name: self._average(values, layers[:, None] == self.layer) for name, values in self.of_heads.items()
        }
        all_heads = np.ones((1, len(self.layer)), np.bool_)
        of_model = {name: self._average(values, all_heads) for name, values in self.of_heads.items()}
        of_model |= {name: numbers[:, None] for name, numbers in self.of_measures.items()}
        heads = {"layer": self.layer, "head": self.head}
        return ("", heads, self.of_heads), ("_model", {"layer": layers}, of_layers), ("_model", OF_MODEL, of_model)

    @staticmethod
    def _average(values: F64, groups: Bool) -> F64:
        """Means over groups of heads, (groups, heads), in each sequence."""
        return np.stack([average_known(values[:, group].T) for group in groups], axis=1)

    def is_alike(self, other: "Member") -> bool:
        """Whether the sequences are the same, token by token."""
        return np.array_equal(self.tokens, other.tokens)

    def has_heads_of(self, other: "Member") -> bool:
        """Whether the heads are the same."""
        return np.array_equal(self.layer, other.layer) and np.array_equal(self.head, other.head)


def read_member(folder: Path, study: str) -> Member:
    """Read a member that has landed from the warehouse."""
    with open_database(locate_database(folder, study)) as connection:
        connection.execute("USE it")
        evidence = Evidence(connection)
        tokens = evidence.ask_columns("SELECT token_id FROM tokens ORDER BY sequence, position")["token_id"]
        of_heads = {name: evidence.ask_heads(statement)["value"] for name, (statement, _) in QUANTITIES.items()}
        numbers = evidence.ask_means(_OF_MODEL)
        measures = connection.execute(
            "SELECT measure, value, value_low, value_high, sequences FROM measures UNION ALL "
            "SELECT measure || '_of_twin', twin_value, twin_low, twin_high, sequences FROM measures "
            "WHERE measure IN ('recall_compared', 'auc_compared') AND twin_value IS NOT NULL"
        ).fetchall()
        claims = connection.execute("SELECT claim, statement, verdict, p_holm FROM claims ORDER BY claim").fetchall()
        top_keys = [*evidence.ask_heads(_TOP_KEYS.format(ranks=_RANKS)).values()]
    return Member(
        study,
        tokens.astype(np.int64).reshape(evidence.sequences, -1),
        evidence.heads["layer"].astype(np.int64),
        evidence.heads["head"].astype(np.int64),
        {name: values for name, values in of_heads.items() if not np.isnan(values).all()},
        {name: sample.of_sequences for name, sample in numbers.items()},
        {name: (*(np.nan if end is None else end for end in ends), count) for name, *ends, count in measures},
        tuple(claims),
        np.nan_to_num(np.stack(top_keys, axis=-1), nan=-1).astype(np.int64),
    )


def _try_reading(folder: Path, study: str) -> Member | None:
    """A member, or None with a warning if an earlier version landed it."""
    try:
        return read_member(folder, study)
    except duckdb.ProgrammingError as error:  # a table or column is not there
        first = str(error).partition("\n")[0]
        logger.warning("%s: its database was made by an earlier version (%s); run it again", study, first)
        return None


def compute_family(family: Family, folder: Path, origins: Mapping[str, str | None]) -> Rows:
    """Yield the rows of all tables of a family; ``UserError`` if the database of a member cannot be read.

    ``folder``: the warehouse; ``origins``: a digest of what each member was made from, None if it has not landed, so
    that it is only listed.
    """
    first: Member | None = None
    previous: Member | None = None
    trends: list[pa.RecordBatch] = []  # Of quantities that have an onset
    listed = []
    for number, (study, value) in enumerate(family.members.items()):
        member = None if origins[study] is None else _try_reading(folder, study)
        alike = None if member is None else first is None or member.is_alike(first)
        sequences = None if member is None else len(member.tokens)
        listed.append((study, number, family.axis, value, member is not None, sequences, alike, origins[study]))
        if member is None:
            continue
        yield from _build_trends(member, trends)
        yield from _build_differences(member, first, previous)
        if previous is not None and member.is_alike(previous):
            yield from _compare_selections(member, previous)
        yield "family_claims", _build_rows(("claim", "statement", "verdict", "p_holm"), member.claims, study=study)
        first, previous = first or member, member
    names = ("study", "member", "axis", "value", "landed", "sequences", "alike", "origin")
    yield "family_members", _build_rows(names, listed)
    if trends:
        yield from (("onsets", batch) for batch in find_onsets(trends, list(family.members)))


def _build_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]], **constants: str) -> pa.RecordBatch:
    """Rows with these columns as a batch, and columns with one text in all rows."""
    columns = {name: pa.array([row[index] for row in rows]) for index, name in enumerate(names)}
    return pa.RecordBatch.from_pydict(
        columns | {name: pa.array([text] * len(rows), pa.string()) for name, text in constants.items()}
    )


def find_onsets(trends: Sequence[pa.RecordBatch], members: Sequence[str]) -> list[pa.RecordBatch]:
    """The rows of ``onsets``, from rows of both tables of trends, and the names of the members in order.

    An onset is the first member from which on every estimate exceeds the threshold. It is told only with the members
    between which it lies, whose whole intervals are below and above; no step is interpolated. Members without a value
    are passed over.
    """
    tables = [pa.Table.from_batches([batch]) for batch in trends]
    tables += [pa.schema([("layer", pa.int64()), ("head", pa.int64())]).empty_table()]
    with duckdb.connect() as connection:
        connection.register("trends", pa.concat_tables(tables, promote_options="permissive"))
        connection.register("thresholds", pa.table({"quantity": [*ONSETS], "threshold": [*ONSETS.values()]}))
        found: list[pa.RecordBatch] = (
            connection.sql(_FIND_ONSETS, params={"members": members}).to_arrow_table().to_batches()
        )
    return found


def _build_trends(member: Member, kept: list[pa.RecordBatch]) -> Rows:
    """The rows of ``family_trends`` and ``family_trends_model`` of one member; keeps those of onsets."""
    for table, place, name, estimate, sequences in _list_trends(member):
        columns = {**place, "sequences": sequences, **estimate.name_ends("value")}
        batch = build_batch(columns, study=member.study, quantity=name)
        kept += [batch] if name in ONSETS else []
        yield f"family_trends{table}", batch


def _list_trends(member: Member) -> Iterator[tuple[str, Place, str, Estimate, NDArray[np.int64]]]:
    """A level, its places, a quantity, and its estimates with the numbers of sequences; measures as they landed."""
    domains = {name: domain for name, (_, domain) in QUANTITIES.items()} | {LOSS: POSITIVE}
    for end, place, quantities in member.levels:
        landed = member.measures if place is OF_MODEL else ()
        for name in [name for name in quantities if name in domains and name not in landed]:
            counts = np.asarray((~np.isnan(quantities[name])).sum(axis=0), np.int64)
            yield end, place, name, estimate_mean(quantities[name], domains[name]), counts
    for name, (value, low, high, count) in member.measures.items():
        ends = (np.array([end], np.float64) for end in (value, np.nan, low, high))
        yield "_model", OF_MODEL, name, Estimate(*ends), np.array([count])


def _build_differences(member: Member, first: Member | None, previous: Member | None) -> Rows:
    """The rows of ``family_differences`` and ``family_differences_model`` of one member."""
    for reference in {one.study: one for one in (first, previous) if one is not None}.values():
        paired = member.is_alike(reference)
        texts = {"study": member.study, "reference": reference.study}
        flags = {"is_first": reference is first, "is_previous": reference is previous, "paired": paired}
        first_level = 0 if member.has_heads_of(reference) else 2
        for (end, place, ones), (_, _, others) in [*zip(member.levels, reference.levels, strict=True)][first_level:]:
            for name in [name for name in ones if name in others]:
                values, other = ones[name], others[name]
                if paired and len(values) != len(other):  # losses are of other sequences
                    continue
                is_share = name in QUANTITIES and QUANTITIES[name][1] == SHARE
                domain = DIFFERENCE if is_share else UNBOUNDED
                estimate = estimate_difference(values, other, paired=paired, domain=domain)
                columns = {**place, **{flag: np.full(values.shape[1], given) for flag, given in flags.items()}}
                batch = build_batch(columns | estimate.name_ends("difference"), **texts, quantity=name)
                yield f"family_differences{end}", batch


def _compare_selections(member: Member, previous: Member) -> Rows:
    """The rows of ``family_overlaps`` of one member: the selections of each head at the last query, compared."""
    if not member.has_heads_of(previous):
        return
    shared = count_shared(member.top_keys, previous.top_keys, SHARED)
    estimate = estimate_mean(shared / SHARED, SHARE)
    head, index = np.nonzero((member.top_keys >= 0).sum(axis=-1).min(axis=0)[:, None] >= SHARED)
    columns = {
        "layer": member.layer[head],
        "head": member.head[head],
        "n": SHARED[index],
        "sequences": np.full(head.size, len(shared)),
        "alike": (shared == SHARED).sum(axis=0)[head, index],
    }
    ends = {name: part[head, index] for name, part in estimate.name_ends("shared").items()}
    yield "family_overlaps", build_batch(columns | ends, study=member.study, reference=previous.study)


def count_shared(ranked: NDArray[np.integer], other: NDArray[np.integer], counts: NDArray[np.integer]) -> I64:
    """Count the keys in both selections I_N, exactly, for several N.

    Parameters
    ----------
    ranked, other
        The keys of largest weight of each, in order of falling weight, integers (…, R); below 0 where there is none.
    counts
        The numbers N, integers (k,), from 1 to R.

    Returns
    -------
    ndarray
        |I_N ∩ I'_N|, int64 (…, k).
    """
    rank = np.arange(ranked.shape[-1])
    same = (ranked[..., :, None] == other[..., None, :]) & (ranked >= 0)[..., None]
    later = np.maximum(rank[:, None], rank)  # a key is in both selections from this N on
    return np.stack([(same & (later < count)).sum(axis=(-2, -1)) for count in counts], axis=-1)
