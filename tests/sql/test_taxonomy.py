"""Signatures and taxonomy of heads in SQL against a plain reading of their definitions (Section 4.2)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pytest

from geometry.grids import quantile_over_ln_n
from tests.sql.hand_made import Row, break_statement, database, rows_of
from tests.sql.kinds_oracle import DEFAULTS, RULES, Held, classified, held

QUERIES = (5, 11)
SEQUENCES = 4
HEADS = 42
OTHERS = {"last_high": 0.7, "sink_seen": 0.8, "sink_comparable": 1.0, "broad_share": 0.3}
"""Other thresholds than the default."""
NORMS = ("norm_y_0", "norm_y_last", "norm_rest")
COSINES = ("cos_sink", "cos_last")
LINES = tuple(f"{cosine}_{part}" for cosine in COSINES for part in ("level", "change"))
COURSE = ("cos_sink_max", *LINES)
LEFT_OUT = ("change_without_sink", "change_without_last")
SIGNATURE = (
    "n_keys",
    *NORMS,
    *LEFT_OUT,
    *COURSE,
    "cos_last_p05",
    "effective_contributors",
    "top_is_other",
)
SHOWN = (*COURSE, "cos_last_p05", "effective_contributors")
SHARES = ("sink_share", "last_share", "rest_share")


def float32(number: float) -> float:
    """What a FLOAT keeps of a number."""
    return float(np.float32(number))


def keys_of(head: int, query: int) -> int:
    """Every seventh head attends to itself alone, and of the others every fifth to half of the keys."""
    if head % 7 == 0:
        return 1
    return query // 2 if head % 5 == 0 else query + 1


def attended(rng: np.random.Generator, head: int, hidden: bool, n_keys: int) -> Row:
    """Norms of a head's parts and of its output; head 8 has weights or value states of 0, head 9 a sink of 0."""
    sink, last, rest = ((0.2, 1, 0.4), (0.5, 0.6, 0.9), (0.7, 0.3, 0.7))[head % 3] * rng.uniform(0.6, 1.6, 3)
    zero = float(head != 8)
    alone = float(n_keys > 1)
    sink, last, rest = zero * (not hidden) * (head != 9) * sink, zero * last, zero * alone * rest
    return {
        "n_keys": n_keys,
        "sink_attended": not hidden,
        "weight_sum": 1.0,
        "learned_sink": 0.0,
        "norm_y_0": None if hidden else float32(sink),
        "norm_y_last": float32(last),
        "norm_rest": float32(rest),
        "total_rest": float32(rest * rng.uniform(1, 5)),
        "norm_output": float32(sink + last + rest),
        "norm_output_without_sink": None if hidden else float32(last + rest + rng.uniform(0, sink / 2)),
        "norm_output_without_last": float32(sink + rest + rng.uniform(0, last / 2)),
        "norm_contributions": float32(np.sqrt(sink**2 + last**2 + rest**2)),
    }


def spread(rng: np.random.Generator, head: int, query: int, n_keys: int) -> Row:
    """Over how many keys contributions are spread; over none in head 8, and weights over all alike."""
    effective = float32(rng.uniform(1, 1 + (head % 4) * (n_keys - 1) / 3))
    top = int(rng.integers(query + 1 - n_keys, query + 1))
    contributors = {
        **dict.fromkeys(("entropy_contributors", "effective_contributors"), effective),
        "top_contribution": 0.5,
        **dict.fromkeys(("contributors_50", "contributors_90", "contributors_99"), 1),
        "top_contributor_position": top,
        "top_contributor_role": "last" if top == query else "other" if top else "sink",
    }
    return {
        "n_keys": n_keys,
        **dict.fromkeys(("entropy_keys", "effective_keys", "top_weight", "largest_deviation"), 1.0),
        **dict.fromkeys(("n_50", "n_90", "n_99"), 1),
        "top_position": query,
        "top_role": "last",
        **(dict.fromkeys(contributors) if head == 8 else contributors),
    }


def selection(rng: np.random.Generator, head: int, hidden: bool, n: int) -> Row:
    """The sink's norm and the cosines of one s_N; in head 10 and 11 a cosine is missing at most N, or at some."""
    sink, last = ((0.3, 0.9), (1 / n, 1 - 0.8 / n), (0.9, 0.1))[head % 3] + rng.normal(0, 0.1, 2)
    missing = head == 8 or (head == 10 and n != 3) or (head == 11 and n % 3 == 1)
    return {
        "a_0": None if hidden or n <= head % 4 else 1.0,
        "cos_sink": None if hidden or missing or head == 9 else float32(np.clip(sink, -1, 1)),
        "cos_last": None if missing else float32(np.clip(last, -1, 1)),
    }


def disagreeing(row: Row) -> Row:
    """Head 13 is a Retriever in half of the sequences and a Reset head in the others: neither in most of them."""
    if row["head"] != 13:
        return row
    if "n" not in row:
        lengths = (0.0, 1.0, 0.0) if row["sequence"] < 2 else (2.0, 0.125, 0.125)
        whole, without_sink, without_last = (1.0, 1.0, 0.0) if row["sequence"] < 2 else (2.0, 0.25, 2.0)
        outputs = {
            "norm_output": whole,
            "norm_output_without_sink": without_sink,
            "norm_output_without_last": without_last,
        }
        return row | dict(zip(NORMS, lengths, strict=True)) | outputs
    at = np.log(row["n"]) / np.log(row["n_keys"] - 1)
    cosines = (1.0, 1.0) if row["sequence"] < 2 else (float32(1 - 1.5 * at), float32(1.7 * at - 0.7))
    return row | dict(zip(COSINES, cosines, strict=True))


def study() -> dict[str, list[Row]]:
    """Rows of attention and the courses of cosines: hidden sinks, single keys, zeros and missing cosines among them."""
    rng = np.random.default_rng(0)
    rows, levels = [], []
    for sequence, query, head in product(range(SEQUENCES), QUERIES, range(HEADS)):
        where = {"sequence": sequence, "query": query, "layer": head % 2, "head": head}
        n_keys = keys_of(head, query)
        hidden = n_keys <= query
        found = [
            disagreeing(where | {"n": n, "n_keys": n_keys} | selection(rng, head, hidden, n)) for n in range(1, n_keys)
        ]
        low = {"cos_last_p05": low_quantile([row["cos_last"] for row in found])}
        attending = disagreeing(where | attended(rng, head, hidden, n_keys)) | low
        rows.append(attending | spread(rng, head, query, n_keys))
        levels += [where | follow(found, n_keys)] if found else []
    return {"attention_rows": rows, "head_levels": levels}


def low_quantile(cosines: Sequence[float | None]) -> float | None:
    """What a cosine reaches over 95 % of ln N."""
    known = np.array([np.nan if cosine is None else cosine for cosine in cosines], np.float32)
    found = float(quantile_over_ln_n(known, 0.05))
    return None if np.isnan(found) else found


def line(cosines: Mapping[int, float | None], n_keys: int) -> tuple[float | None, float | None]:
    """Level and change of a cosine over ln N: least squares in which N weighs 1/N."""
    n = np.array([n for n, cosine in cosines.items() if cosine is not None], float)
    known = np.array([cosine for cosine in cosines.values() if cosine is not None], float)
    if not known.size:
        return None, None
    slope = np.polyfit(np.log(n), known, 1, w=1 / np.sqrt(n))[0] if known.size > 1 else 0.0
    return float(np.average(known, weights=1 / n)), float(slope * np.log(n_keys - 1))


def follow(selections: Sequence[Row], n_keys: int) -> Row:
    """The course of the cosines of a head over its selections."""
    lines = [line({one["n"]: one[cosine] for one in selections}, n_keys) for cosine in COSINES]
    faced = [one["cos_sink"] for one in selections if one["a_0"] is not None and one["cos_sink"] is not None]
    ends = [end for of_cosine in lines for end in of_cosine]
    return dict(zip(COURSE, [max(faced, default=None), *ends], strict=True))


STUDY = study()


def key(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def mean(numbers: Iterable[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


@cache
def signatures() -> dict[tuple[Any, ...], Row]:
    """What ``head_signatures`` must hold, by (sequence, query, head)."""
    courses = {key(row, "sequence", "query", "head"): row for row in STUDY["head_levels"]}
    expected = {}
    for row in STUDY["attention_rows"]:
        place = key(row, "sequence", "query", "head")
        course, role = courses.get(place, dict.fromkeys(COURSE)), row["top_contributor_role"]
        expected[place] = {
            **{name: row[name] for name in ("n_keys", *NORMS, "cos_last_p05")},
            "change_without_sink": change(row["norm_output"], row["norm_output_without_sink"]),
            "change_without_last": change(row["norm_output"], row["norm_output_without_last"]),
            **{name: course[name] for name in COURSE},
            "effective_contributors": row["effective_contributors"],
            "top_is_other": None if role is None else float(role == "other"),
        }
    return expected


def change(whole: float, without: float | None) -> float | None:
    """By how much a norm changes without a part."""
    return None if without is None else abs(whole - without)


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


def compare_signatures(connection: duckdb.DuckDBPyConnection) -> None:
    expected = signatures()
    found = rows_of(connection, "head_signatures")
    assert len(found) == len(expected)
    for row in found:
        same(row, expected[key(row, "sequence", "query", "head")])


def compare_taxonomy(connection: duckdb.DuckDBPyConnection, relation: str, **thresholds: float) -> None:
    expected = taxonomy(DEFAULTS | thresholds)
    found = rows_of(connection, relation)
    assert len(found) == len(expected)
    for row in found:
        assert row["layer"] == row["head"] % 2
        same(row, expected[key(row, "query", "head")])


def compare_labels(connection: duckdb.DuckDBPyConnection) -> None:
    expected = labels(DEFAULTS)
    found = rows_of(connection, "kinds_by_sequence")
    assert len(found) == len(expected)
    for row in found:
        one = expected[key(row, "sequence", "query", "head")]
        same(row, {name: value for name, value in one.items() if name in row})


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


def compare_default_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    compare_taxonomy(connection, "head_taxonomy")


def compare_other_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    arguments = ", ".join(f"{name} := {value}" for name, value in OTHERS.items())
    compare_taxonomy(connection, f"taxonomy({arguments})", **OTHERS)


COMPARISONS = (
    compare_signatures,
    compare_labels,
    compare_default_taxonomy,
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
    assert any(row["cos_last_change"] == 0 for row in by_default)
    assert {one.met for each in conditions().values() for one in each} == {True, False}
    assert {row["label"] for row in taxonomy(DEFAULTS | OTHERS).values()} == {*RULES, "Other"}


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
        (compare_other_taxonomy, "taxonomy", "last_high := last_high", "last_high := NULL"),
        *(
            (compare_default_taxonomy, "summarise_kinds", old, new)
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
