"""Signatures and taxonomy of heads in SQL against a plain reading of their definitions (Section 4.2)."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.sql.hand_made import Row, break_statement, database, rows_of
from tests.sql.kinds_oracle import BROAD, DEFAULTS, MIXER, RETRIEVER, RULES, SINK_BIASED, Held, classified, held

QUERIES = (5, 11)
SEQUENCES = 4
HEADS = 42
OTHERS = {"last_high": 0.7, "sink_seen": 0.8, "sink_comparable": 1.0, "broad_share": 0.3}
"""Other thresholds than the default."""
COURSE = ("cos_sink_max", *(f"{cosine}_{part}" for cosine in ("cos_sink", "cos_last") for part in ("level", "change")))
SHOWN = (*COURSE, "cos_last_p05", "effective_contributors")
SHARES = ("sink_share", "last_share", "rest_share")
KINDS = (RETRIEVER, MIXER, SINK_BIASED, BROAD)


TIES = (
    MIXER | {"norm_y_0": 0.25, "norm_y_last": 1.0, "norm_rest": 1.0, "cos_last_p05": 0.9},
    SINK_BIASED | {"change_without_last": 0.6},
    RETRIEVER | {"cos_last_p05": 0.5},
    BROAD | {"effective_contributors": 10.0},
)
"""Signatures that are on a threshold, or met by two rules alike."""
MISREAD = (
    BROAD | {"effective_contributors": 1.1, "cos_last_level": 0.1},  # looks at the token before
    MIXER | {"cos_sink_max": 0.0},  # never faces the sink
    RETRIEVER | {"cos_last_level": 0.8, "cos_last_p05": 0.3},  # is near to the last token by the ends of a line
)
"""Signatures that earlier rules took for a kind."""
FIXED = dict(enumerate(TIES + MISREAD, start=15))
"""Heads that have one signature in every sequence."""


def draw(rng: np.random.Generator, sequence: int, query: int, head: int) -> Row:
    """A signature near a threshold of one of the kinds, in numbers that a FLOAT keeps.

    Every seventh head attends to itself alone; from others a window hides the sink, or they have weights or value
    states of 0. Head 13 is a Retriever in half of the sequences and a Reset head in the others.
    """
    if head in FIXED:
        return {name: round(64 * value) / 64 for name, value in FIXED[head].items()}
    base = KINDS[head % 4] if head != 13 else (RETRIEVER, SINK_BIASED)[sequence // 2]
    row: Row = {name: round(64 * (value + rng.normal(0, 0.2 * abs(value) + 0.02))) / 64 for name, value in base.items()}
    row |= {name: abs(row[name]) for name in row if "norm" in name or "change_without" in name}
    row["n_keys"] = 1.0 if head % 7 == 0 else query // 2 if head % 5 == 0 else query + 1.0
    row["effective_contributors"] = 1 + abs(row["effective_contributors"] - 1) * (head % 3) / 2
    row["top_is_other"] = float(rng.integers(2))
    if row["n_keys"] <= query:
        row |= dict.fromkeys(("norm_y_0", "change_without_sink", "cos_sink_max", "cos_sink_level", "cos_sink_change"))
    if row["n_keys"] == 1:
        row |= dict.fromkeys((*COURSE, "cos_last_p05"))
    if head == 8:
        row |= {name: 0.0 for name in row if "norm" in name or "change_without" in name}
        row |= dict.fromkeys((*COURSE, "cos_last_p05", "effective_contributors", "top_is_other"))
    if head == 9:
        row |= dict.fromkeys(("cos_sink_max", "cos_sink_level", "cos_sink_change"))
    return row


def study() -> dict[str, list[Row]]:
    """Rows of attention, and of the courses of cosines, that have these signatures."""
    rows, levels = [], []
    for (sequence, query, head), one in signatures().items():
        where = {"sequence": sequence, "query": query, "layer": head % 2, "head": head}
        hidden, role = one["norm_y_0"] is None, {None: None, 0.0: "last", 1.0: "other"}[one["top_is_other"]]
        stored = {name: one[name] for name in ("norm_y_0", "norm_y_last", "norm_rest", "cos_last_p05")}
        outputs = {
            "norm_output": 4.0,
            "norm_output_without_sink": None if hidden else 4.0 - one["change_without_sink"],
            "norm_output_without_last": 4.0 + one["change_without_last"],
        }
        spread = {"effective_contributors": one["effective_contributors"], "top_contributor_role": role}
        rows.append(where | stored | outputs | spread | {"n_keys": int(one["n_keys"]), "sink_attended": not hidden})
        if one["n_keys"] > 1:
            levels.append(where | {name: one[name] for name in COURSE})
    return {"attention_rows": rows, "head_levels": levels}


def key(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def mean(numbers: Iterable[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


@cache
def signatures() -> dict[tuple[Any, ...], Row]:
    """What ``head_signatures`` must hold, by (sequence, query, head)."""
    rng = np.random.default_rng(0)
    return {place: draw(rng, *place) for place in product(range(SEQUENCES), QUERIES, range(HEADS))}


STUDY = study()


def labels(thresholds: Mapping[str, float]) -> dict[tuple[Any, ...], Row]:
    """What ``kinds_by_sequence`` must hold, by (sequence, query, head)."""
    return {place: classified(signature, thresholds) for place, signature in signatures().items()}


def taxonomy(thresholds: Mapping[str, float]) -> dict[tuple[Any, ...], Row]:
    """What ``taxonomy`` must give, by (query, head)."""
    by_sequence = labels(thresholds)
    expected = {}
    for query, head in product(QUERIES, range(HEADS)):
        places = [(sequence, query, head) for sequence in range(SEQUENCES)]
        each = [by_sequence[place] for place in places]
        shares = {kind: sum(row["label"] == kind for row in each) / SEQUENCES for kind in (*RULES, "Other")}
        label = next((kind for kind in RULES if shares[kind] > 0.5), "Other")
        scores = {kind: mean(row[f"{kind.lower()}_score"] for row in each) for kind in RULES}
        known = {kind: score for kind, score in scores.items() if score is not None}
        nearest = max(known, key=lambda kind: known[kind], default=None)
        if label == "Other":
            margin = None if nearest is None else -known[nearest]
        else:
            margin = known[label] - max([0.0, *(score for kind, score in known.items() if kind != label)])
        means = {name: mean(signatures()[place][name] for place in places) for name in (*SHOWN, "top_is_other")}
        effective = means["effective_contributors"]
        expected[query, head] = {
            "label": label,
            "nearest": nearest,
            "margin": margin,
            "agreement": shares[label],
            "sequences": SEQUENCES,
            "single_key": label == "Other"
            and effective is not None
            and effective < 2
            and means.pop("top_is_other") > 0.5,
            **{f"{kind.lower()}_share": share for kind, share in shares.items()},
            **{f"{kind.lower()}_score": score for kind, score in scores.items()},
            **{name: mean(row[name] for row in each) for name in SHARES},
            **{name: means[name] for name in SHOWN},
        }
    return expected


def conditions() -> dict[tuple[Any, ...], list[Held]]:
    """Every condition in all sequences, by (query, head, kind, way, condition)."""
    expected: dict[tuple[Any, ...], list[Held]] = {}
    for (_, query, head), signature in signatures().items():
        found = held(signature, DEFAULTS)
        for kind, ways in RULES.items():
            for way, names in ways.items():
                for name in names:
                    expected.setdefault((query, head, kind, way, name), []).append(found[name])
    return expected


def same(found: Row, expected: Row) -> None:
    """Equal, numbers to rounding."""
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        else:
            assert found[name] == value, name


def compare_rows(
    connection: duckdb.DuckDBPyConnection, relation: str, expected: dict[tuple[Any, ...], Row], *names: str
) -> list[Row]:
    """The rows of a relation, one for each that is expected by the columns ``names``."""
    found = rows_of(connection, relation)
    assert len(found) == len(expected)
    for row in found:
        same(row, expected[key(row, *names)])
    return found


def compare_signatures(connection: duckdb.DuckDBPyConnection) -> None:
    compare_rows(connection, "head_signatures", signatures(), "sequence", "query", "head")


def compare_taxonomy(connection: duckdb.DuckDBPyConnection, relation: str, **thresholds: float) -> None:
    for row in compare_rows(connection, relation, taxonomy(DEFAULTS | thresholds), "query", "head"):
        assert row["layer"] == row["head"] % 2


def compare_labels(connection: duckdb.DuckDBPyConnection) -> None:
    columns = connection.table("kinds_by_sequence").columns
    stored = {place: {name: row[name] for name in row if name in columns} for place, row in labels(DEFAULTS).items()}
    compare_rows(connection, "kinds_by_sequence", stored, "sequence", "query", "head")


def compare_conditions(connection: duckdb.DuckDBPyConnection) -> None:
    expected = conditions()
    found = rows_of(connection, "head_conditions")
    assert len(found) == len(expected)
    for row in found:
        each = expected[key(row, "query", "head", "kind", "way", "condition")]
        met = sum(one.met for one in each) / SEQUENCES
        same(row, {"value": mean(one.value for one in each), "direction": each[0].direction, "met_share": met})
        if row["value"] is not None:
            same(row, {"threshold": mean(one.limit for one in each)})


def compare_sensitivity(connection: duckdb.DuckDBPyConnection) -> None:
    labelled = {place: row["label"] for place, row in taxonomy(DEFAULTS).items()}
    found = rows_of(connection, "taxonomy_sensitivity")
    factors = (0.5, 0.9, 1.1, 2.0)
    assert {key(row, "query", "threshold", "factor") for row in found} == {*product(QUERIES, DEFAULTS, factors)}
    assert len(found) == len(QUERIES) * len(DEFAULTS) * len(factors)
    for row in found:
        value = row["factor"] * DEFAULTS[row["threshold"]]
        moved = {
            place: one
            for place, one in taxonomy(DEFAULTS | {row["threshold"]: value}).items()
            if place[0] == row["query"]
        }
        changed = sum(one["label"] != labelled[place] for place, one in moved.items())
        others = mean(one["other_share"] for one in moved.values())
        same(row, {"value": value, "heads": HEADS, "changed": changed, "other_share": others})


def compare_moved(connection: duckdb.DuckDBPyConnection) -> None:
    found = rows_of(connection, "kinds_moved")
    assert len(found) == len(QUERIES) * HEADS * len(DEFAULTS) * 4
    values = {key(row, "threshold", "value") for row in found}
    moved = {place: taxonomy(DEFAULTS | dict([place])) for place in values}
    for row in found:
        one = moved[key(row, "threshold", "value")][key(row, "query", "head")]
        assert row["label"] == one["label"]
        same(row, {"other_share": one["other_share"]})


def compare_rules(connection: duckdb.DuckDBPyConnection) -> None:
    compare_labels(connection)
    compare_conditions(connection)


def compare_default_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    compare_taxonomy(connection, "head_taxonomy")


def compare_other_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    arguments = ", ".join(f"{name} := {value}" for name, value in OTHERS.items())
    compare_taxonomy(connection, f"taxonomy({arguments})", **OTHERS)


COMPARISONS = (
    compare_default_taxonomy,
    compare_signatures,
    compare_labels,
    compare_other_taxonomy,
    compare_conditions,
    compare_moved,
    compare_sensitivity,
)


@pytest.mark.one_case
@pytest.mark.parametrize("compare", COMPARISONS)
def test_heads_are_told_apart_as_a_plain_reading_does(compare: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
    with database(**STUDY) as connection:
        compare(connection)


def test_the_study_has_every_case() -> None:
    """Or the comparison would compare little."""
    by_default = taxonomy(DEFAULTS).values()
    assert {row["label"] for row in by_default} == {*RULES, "Other"}
    assert {row["nearest"] for row in by_default if row["label"] == "Other"} == {*RULES, None}
    assert {SEQUENCES * row["agreement"] for row in by_default} >= {0, 2, 3, 4}
    assert {row["single_key"] for row in by_default} == {True, False}
    assert any(row["cos_sink_level"] is None and row["cos_last_level"] is not None for row in by_default)
    assert {one.met for each in conditions().values() for one in each} == {True, False}
    assert {row["label"] for row in taxonomy(DEFAULTS | OTHERS).values()} == {*RULES, "Other"}
    misread = list(FIXED)[len(TIES) :]
    assert {taxonomy(DEFAULTS)[query, head]["label"] for query, head in product(QUERIES, misread)} == {"Other"}


def test_a_threshold_that_is_null_has_its_default() -> None:
    with database(**STUDY) as connection:
        ((*stated,),) = connection.sql("SELECT * FROM taxonomy_thresholds()").fetchall()
        assert dict(zip(connection.sql("FROM taxonomy_thresholds()").columns, stated, strict=True)) == DEFAULTS
        nothing = ", ".join(f"{name} := NULL" for name in DEFAULTS)
        same_rows = rows_of(connection, f"taxonomy({nothing})")
        assert same_rows == rows_of(connection, "head_taxonomy")


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("compare", "name", "old", "new"),
    [
        (compare_signatures, "head_signatures", "LEFT JOIN head_levels", "JOIN head_levels"),
        (compare_signatures, "head_signatures", "cos_last_level::DOUBLE", "cos_sink_level::DOUBLE"),
        (compare_signatures, "head_signatures", "- norm_output_without_sink)", "- norm_output_without_last)"),
        (compare_signatures, "head_signatures", "top_contributor_role = 'other'", "top_role = 'other'"),
        *(
            (compare_rules, "label_heads", old, new)
            for old, new in (
                ("stated.last_leads * greatest(sink_share, rest_share)", "stated.last_leads * sink_share"),
                ("cos_last_p05 END AS last_high", "cos_last_level END AS last_high"),
                ("least(sink_share, rest_share) AS above", "rest_share AS above"),
                ("greatest(sink_share, rest_share) AS below", "rest_share AS below"),
                ("cos_sink_max END AS sink_seen", "cos_sink_level END AS sink_seen"),
                ("-cos_sink_change END", "cos_sink_change END"),
                ("stated.last_rises AS", "stated.sink_seen AS"),
                ("cos_last_level END AS last_weak", "cos_last_p05 END AS last_weak"),
                ("stated.sink_comparable * greatest(last_share, rest_share)", "stated.sink_comparable * last_share"),
                ("sink_matters_value > sink_matters_limit", "sink_matters_value >= sink_matters_limit"),
                ("change_without_last / total_norm AS", "change_without_sink / total_norm AS"),
                ("stated.broad_share * n_keys", "stated.broad_share * 10"),
                ("greatest(broad_least_value, broad_least_limit)", "1"),
                ("CASE WHEN n_keys > 1 THEN", "CASE WHEN n_keys > 0 THEN"),
                ("coalesce(norm_y_0, 0)", "coalesce(norm_y_0, 1)"),
                ("CASE WHEN sink_share IS NOT NULL THEN last_share END", "last_share"),
                ("(sink_comparable_met AND sink_matters_met) OR", "(sink_comparable_met) OR"),
                ("(broad_least_met AND broad_share_met)", "(broad_least_met OR broad_share_met)"),
                ("greatest(least(sink_comparable_slack", "least(least(sink_comparable_slack"),
                ("CASE won WHEN retriever_won", "CASE won WHEN mixer_won THEN 'Mixer' WHEN retriever_won"),
                ("WHEN mixer THEN 'Mixer'", "WHEN mixer THEN 'Reset'"),
            )
        ),
        (compare_other_taxonomy, "taxonomy", "last_high := last_high", "last_high := NULL"),
        *(
            (compare_default_taxonomy, "taxonomy", old, new)
            for old, new in (
                ("reset_share > 0.5", "reset_share >= 0.5"),
                ("avg(rest_share)", "max(rest_share)"),
                ("avg(cos_last_change)", "median(cos_last_change)"),
                ("coalesce(mixer_score, 0)", "coalesce(mixer_score, 1)"),
                ("ELSE -highest", "ELSE highest"),
                ("effective_contributors < 2", "effective_contributors < 1"),
                ("top_is_other > 0.5", "top_is_other >= 0.5"),
            )
        ),
        (compare_default_taxonomy, "taxonomy_thresholds", "(last_weak, 0.3)", "(last_weak, 0.4)"),
        (compare_conditions, "head_conditions", "avg(met::INTEGER)", "max(met::INTEGER)"),
        (compare_conditions, "head_conditions", "avg(threshold)", "max(threshold)"),
        (compare_sensitivity, "kinds_moved", "0.9::DOUBLE", "0.8::DOUBLE"),
        (compare_sensitivity, "kinds_moved", "WHEN 'last_weak' THEN value", "WHEN 'last_weak' THEN 9"),
        (compare_moved, "kinds_moved", "> 0.5 THEN 'Reset'", "> 2 THEN 'Reset'"),
        (compare_sensitivity, "taxonomy_sensitivity", "<> head_taxonomy.label", "= head_taxonomy.label"),
        (compare_sensitivity, "taxonomy_sensitivity", "avg(kinds_moved.other_share)", "max(kinds_moved.other_share)"),
    ],
)
def test_the_comparison_notices_another_rule(
    monkeypatch: pytest.MonkeyPatch,
    compare: Callable[[duckdb.DuckDBPyConnection], None],
    name: str,
    old: str,
    new: str,
) -> None:
    break_statement(monkeypatch, name, old, new)
    with pytest.raises(AssertionError), database(**STUDY) as connection:
        compare(connection)
