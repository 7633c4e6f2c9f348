"""Diagnostics, signatures and taxonomy of heads in SQL against a plain reading of their definitions (Section 4.2)."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.sql.hand_made import Row, break_statement, database, rows_of

QUERIES = (5, 11)
SEQUENCES = 3
HEADS = 42
LABELS = ("Retriever", "Mixer", "Reset")
DEFAULTS = {
    "last_leads": 1.0,
    "last_high": 0.5,
    "sink_falls": 0.1,
    "last_rises": 0.1,
    "sink_comparable": 0.8,
    "spread_broad": 0.8,
    "last_weak": 0.3,
}
TIED = {"last_high": 1.0, "sink_comparable": 1.0, "spread_broad": 1.0}
"""Under these, all three rules are missed by 1 in a head that attends to itself alone."""
NORMS = ("norm_y_0", "norm_y_last", "norm_rest", "total_rest")
COSINES = ("cos_sink", "cos_last")
LINES = tuple(f"{cosine}_{part}" for cosine in COSINES for part in ("level", "change"))
LENGTHS = ("norm_s", "norm_s_without_sink", "norm_s_without_last")


def float32(number: float) -> float:
    """What a FLOAT keeps of a number."""
    return float(np.float32(number))


def keys_of(head: int, query: int) -> int:
    """Every seventh head attends to itself alone, and of the others every fifth to half of the keys."""
    if head % 7 == 0:
        return 1
    return query // 2 if head % 5 == 0 else query + 1


def attended(rng: np.random.Generator, head: int, hidden: bool, n_keys: int) -> Row:
    """Norms of a head's parts; head 8 has weights or value states of 0, head 9 a sink of 0."""
    sink, last, rest = ((0.2, 1, 0.4), (0.5, 0.6, 0.9), (0.7, 0.3, 0.7))[head % 3] * rng.uniform(0.6, 1.6, 3)
    zero = float(head != 8)
    alone = float(n_keys > 1)
    return {
        "n_keys": n_keys,
        "sink_attended": not hidden,
        "weight_sum": 1.0,
        "learned_sink": 0.0,
        "norm_y_0": None if hidden else float32(zero * (head != 9) * sink),
        "norm_y_last": float32(zero * last),
        "norm_rest": float32(zero * alone * rest),
        "total_rest": float32(zero * alone * rest * rng.uniform(1, 5)),
    }


def selection(rng: np.random.Generator, head: int, hidden: bool, n: int) -> Row:
    """Norms and cosines of one s_N; in head 10 and 11 a cosine is missing at most N, or at some."""
    sink, last = ((0.3, 0.9), (1 / n, 1 - 0.8 / n), (0.9, 0.1))[head % 3] + rng.normal(0, 0.1, 2)
    missing = head == 8 or (head == 10 and n != 3) or (head == 11 and n % 3 == 1)
    return {
        **dict.fromkeys(("k_in", "k_out"), 1),
        **dict.fromkeys(("r_min", "r_max", "a_max_out"), 1.0),
        "norm_s": float32(rng.uniform(0, 2)),
        "norm_s_without_sink": None if hidden else float32(rng.uniform(0, 2)),
        "norm_s_without_last": float32(rng.uniform(0, 2)),
        "cos_sink": None if hidden or missing or head == 9 else float32(np.clip(sink, -1, 1)),
        "cos_last": None if missing else float32(np.clip(last, -1, 1)),
    }


def disagreeing(row: Row) -> Row:
    """Head 13 is a Retriever in one sequence and a Reset head in the others, which makes a Mixer of their means."""
    if row["head"] != 13:
        return row
    if "n" not in row:
        lengths = (0.0, 1.0, 0.0, 0.0) if row["sequence"] == 0 else (2.0, 0.125, 0.125, 0.125)
        return row | dict(zip(NORMS, lengths, strict=True))
    at = np.log(row["n"]) / np.log(row["n_keys"] - 1)
    cosines = (1.0, 1.0) if row["sequence"] == 0 else (float32(1 - 1.5 * at), float32(1.7 * at - 0.7))
    return row | dict(zip(COSINES, cosines, strict=True))


def study() -> dict[str, list[Row]]:
    """Rows of attention and their selections: hidden sinks, single keys, zeros and missing cosines among them."""
    rng = np.random.default_rng(0)
    rows, selections = [], []
    for sequence, query, head in product(range(SEQUENCES), QUERIES, range(HEADS)):
        where = {"sequence": sequence, "query": query, "layer": head % 2, "head": head}
        n_keys = keys_of(head, query)
        hidden = n_keys <= query
        rows.append(disagreeing(where | attended(rng, head, hidden, n_keys)))
        selections += [
            disagreeing(where | {"n": n, "n_keys": n_keys} | selection(rng, head, hidden, n)) for n in range(1, n_keys)
        ]
    return {"attention_rows": rows, "selection_counts": selections}


STUDY = study()


def key(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def mean(numbers: Iterable[float | None]) -> float | None:
    """Mean of those that are known."""
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


def line(cosines: Mapping[int, float | None], n_keys: int) -> tuple[float | None, float | None]:
    """Level and change of a cosine over ln N: least squares in which N weighs 1/N."""
    n = np.array([n for n, cosine in cosines.items() if cosine is not None], float)
    known = np.array([cosine for cosine in cosines.values() if cosine is not None], float)
    if not known.size:
        return None, None
    slope = np.polyfit(np.log(n), known, 1, w=1 / np.sqrt(n))[0] if known.size > 1 else 0.0
    return float(np.average(known, weights=1 / n)), float(slope * np.log(n_keys - 1))


@cache
def signatures() -> dict[tuple[Any, ...], Row]:
    """What ``head_signatures`` must hold, by (sequence, query, head)."""
    by_row: dict[tuple[Any, ...], dict[str, dict[int, float | None]]] = {}
    for row in STUDY["selection_counts"]:
        found = by_row.setdefault(key(row, "sequence", "query", "head"), {cosine: {} for cosine in COSINES})
        for cosine in COSINES:
            found[cosine][row["n"]] = row[cosine]
    expected = {}
    for row in STUDY["attention_rows"]:
        place = key(row, "sequence", "query", "head")
        lines = [number for cosine in COSINES for number in line(by_row.get(place, {}).get(cosine, {}), row["n_keys"])]
        expected[place] = {name: row[name] for name in NORMS} | dict(zip(LINES, lines, strict=True))
    return expected


def classified(signature: Row, thresholds: Mapping[str, float]) -> Row:
    """The three rules, word by word; what is unknown counts as 0."""
    sink, last, rest, lengths = (signature[name] or 0.0 for name in NORMS)
    shares = [part / (sink + last + rest) if sink + last + rest else 0.0 for part in (sink, last, rest)]
    spread = lengths / (sink + last + lengths) if sink + last + lengths else 0.0
    _, sink_change, last_level, last_change = (signature[name] or 0.0 for name in LINES)
    of_sink, of_last, of_rest = shares
    t = thresholds
    retriever = min(
        of_last - t["last_leads"] * max(of_sink, of_rest), last_level - abs(last_change) / 2 - t["last_high"]
    )
    between = min(of_last - min(of_sink, of_rest), max(of_sink, of_rest) - of_last)
    mixer = min(between, -sink_change - t["sink_falls"], last_change - t["last_rises"])
    anchored = max(of_sink - t["sink_comparable"] * max(of_last, of_rest), spread - t["spread_broad"])
    reset = min(anchored, t["last_weak"] - last_level)
    scores = (retriever, mixer, reset)
    best, second, _ = sorted(scores, reverse=True)
    return {
        "label": LABELS[scores.index(best)],
        "fits_rule": best >= 0,
        "margin": best - second,
        **dict(zip(("retriever_score", "mixer_score", "reset_score"), scores, strict=True)),
        **dict(zip(("sink_share", "last_share", "rest_share"), shares, strict=True)),
        "spread": spread,
    }


def taxonomy(thresholds: Mapping[str, float]) -> dict[tuple[Any, ...], Row]:
    """What ``taxonomy`` must give, by (query, head)."""
    of_sequences = signatures()
    expected = {}
    for query, head in product(QUERIES, range(HEADS)):
        each = [of_sequences[sequence, query, head] for sequence in range(SEQUENCES)]
        means = {name: mean(signature[name] for signature in each) for name in (*NORMS, *LINES)}
        row = classified(means, thresholds)
        agreeing = [classified(signature, thresholds)["label"] == row["label"] for signature in each]
        lines = {name: means[name] for name in LINES}
        expected[query, head] = row | lines | {"agreement": np.mean(agreeing), "sequences": SEQUENCES}
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


def compare_sensitivity(connection: duckdb.DuckDBPyConnection) -> None:
    labels = {place: row["label"] for place, row in taxonomy(DEFAULTS).items()}
    found = rows_of(connection, "taxonomy_sensitivity")
    assert {key(row, "query", "threshold", "factor") for row in found} == {*product(QUERIES, DEFAULTS, (0.9, 1.1))}
    assert len(found) == len(QUERIES) * len(DEFAULTS) * 2
    for row in found:
        value = row["factor"] * DEFAULTS[row["threshold"]]
        moved = taxonomy(DEFAULTS | {row["threshold"]: value})
        changed = sum(moved[place]["label"] != label for place, label in labels.items() if place[0] == row["query"])
        assert row["value"] == pytest.approx(value)
        assert (row["heads"], row["changed"]) == (HEADS, changed)


def compare_diagnostics(connection: duckdb.DuckDBPyConnection) -> None:
    given: dict[tuple[Any, ...], list[Row]] = {}
    for row in STUDY["selection_counts"]:
        given.setdefault(key(row, "query", "head", "n"), []).append(row)
    found = rows_of(connection, "diagnostics")
    assert len(found) == len(given)
    for row in found:
        among = given[key(row, "query", "head", "n")]
        same(row, {name: mean(other[name] for other in among) for name in (*LENGTHS, *COSINES)})
        assert row["sequences"] == SEQUENCES


def compare_default_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    compare_taxonomy(connection, "head_taxonomy")


def compare_other_taxonomy(connection: duckdb.DuckDBPyConnection) -> None:
    arguments = ", ".join(f"{name} := {value}" for name, value in TIED.items())
    compare_taxonomy(connection, f"taxonomy({arguments})", **TIED)


COMPARISONS = (
    compare_signatures,
    compare_default_taxonomy,
    compare_other_taxonomy,
    compare_sensitivity,
    compare_diagnostics,
)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_heads_are_told_apart_as_a_plain_reading_does(compare: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
    with database(**STUDY) as connection:
        compare(connection)


def test_the_study_has_every_case() -> None:
    """Or the comparison would compare little."""
    by_default, tied = taxonomy(DEFAULTS).values(), taxonomy(DEFAULTS | TIED).values()
    assert {(row["label"], row["fits_rule"]) for row in by_default} == {*product(LABELS, (True, False))}
    assert {round(SEQUENCES * row["agreement"]) for row in by_default} == {0, 1, 2, 3}
    assert {row["label"] for row in tied if row["margin"] == 0} >= {"Retriever"}
    assert any(row["cos_sink_level"] is None and row["cos_last_level"] is not None for row in by_default)
    assert any(row["cos_last_change"] == 0 for row in by_default)


def test_a_threshold_that_is_null_has_its_default() -> None:
    with database(**STUDY) as connection:
        ((*stated,),) = connection.sql("SELECT * FROM taxonomy_thresholds()").fetchall()
        assert dict(zip(connection.sql("FROM taxonomy_thresholds()").columns, stated, strict=True)) == DEFAULTS
        nothing = ", ".join(f"{name} := NULL" for name in DEFAULTS)
        assert rows_of(connection, f"taxonomy({nothing})") == rows_of(connection, "head_taxonomy")


@pytest.mark.parametrize("threshold", DEFAULTS)
def test_every_threshold_can_be_moved_alone(threshold: str) -> None:
    with database(**STUDY) as connection:
        value = DEFAULTS[threshold] + 0.25
        compare_taxonomy(connection, f"taxonomy({threshold} := {value})", **{threshold: value})


def test_ties_go_to_the_retriever_then_to_the_mixer() -> None:
    with database(**STUDY) as connection:
        alone = "SELECT DISTINCT label, margin, fits_rule FROM taxonomy({}) WHERE head % 7 = 0 AND head <> 8"
        all_tied = ", ".join(f"{name} := {value}" for name, value in TIED.items())
        assert connection.sql(alone.format(all_tied)).fetchall() == [("Retriever", 0.0, False)]
        two_tied = all_tied.replace("last_high := 1.0", "last_high := 2")
        assert connection.sql(alone.format(two_tied)).fetchall() == [("Mixer", 0.0, False)]


@pytest.mark.parametrize(
    ("compare", "name", "old", "new"),
    [
        (compare_signatures, "weighted_level", "weight * y", "y"),
        (compare_signatures, "weighted_level", "FILTER (WHERE y IS NOT NULL)", ""),
        (compare_signatures, "weighted_slope", "weight * x * x", "weight * x"),
        (compare_signatures, "weighted_slope", "FILTER (WHERE y IS NOT NULL) * weighted_level", "* weighted_level"),
        (compare_signatures, "weighted_slope", "WHEN count(y) = 1 THEN 0", ""),
        (compare_signatures, "head_signatures", "1 / n AS", "1 AS"),
        (compare_signatures, "head_signatures", "ln(n_keys - 1) AS", "ln(n_keys) AS"),
        (compare_signatures, "head_signatures", "LEFT JOIN lines", "JOIN lines"),
        (compare_signatures, "head_signatures", "* any_value(reach) AS cos_last_change", "AS cos_last_change"),
        (compare_default_taxonomy, "signature_means", "avg(norm_rest)", "max(norm_rest)"),
        (compare_default_taxonomy, "signature_means", "avg(cos_last_change)", "median(cos_last_change)"),
        (compare_default_taxonomy, "label_heads", "coalesce(norm_y_0, 0)", "coalesce(norm_y_0, 1)"),
        (compare_default_taxonomy, "label_heads", "coalesce(cos_last_level, 0)", "coalesce(cos_last_level, 1)"),
        (compare_default_taxonomy, "label_heads", "coalesce(cos_last_change, 0)", "coalesce(cos_last_change, 1)"),
        (compare_default_taxonomy, "label_heads", "coalesce(cos_sink_change, 0)", "coalesce(cos_sink_change, -1)"),
        (compare_default_taxonomy, "label_heads", "norm_y_last + norm_rest, 0", "norm_y_last + total_rest, 0"),
        (compare_default_taxonomy, "label_heads", "norm_y_last + total_rest, 0", "norm_y_last + norm_rest, 0"),
        (compare_default_taxonomy, "label_heads", "abs(known_last_change) / 2", "known_last_change / 2"),
        (compare_default_taxonomy, "label_heads", "last_share - least(", "last_share - greatest("),
        (compare_default_taxonomy, "label_heads", "-known_sink_change -", "known_sink_change -"),
        (compare_default_taxonomy, "label_heads", "known_last_change - stated", "abs(known_last_change) - stated"),
        (
            compare_default_taxonomy,
            "label_heads",
            "comparable * greatest(last_share, rest_share)",
            "comparable * last_share",
        ),
        (compare_default_taxonomy, "label_heads", "last_weak - known", "last_weak + known"),
        (compare_default_taxonomy, "label_heads", "best >= 0", "best >= 0.1"),
        (compare_default_taxonomy, "label_heads", "greatest(retriever_score, mixer_score), reset_score", "mixer_score"),
        (compare_other_taxonomy, "label_heads", "CASE best WHEN retriever_score THEN 'Retriever'", "CASE best"),
        (compare_other_taxonomy, "taxonomy", "last_high := last_high", "last_high := NULL"),
        (compare_default_taxonomy, "taxonomy", "coalesce(agreeing, 0)", "coalesce(agreeing, 1)"),
        (compare_default_taxonomy, "taxonomy", "count(*) AS agreeing", "max(sequence) AS agreeing"),
        (compare_default_taxonomy, "taxonomy_thresholds", "(last_weak, 0.3)", "(last_weak, 0.4)"),
        (compare_default_taxonomy, "taxonomy_thresholds", "(last_leads, 1)", "(last_leads, 1.1)"),
        (compare_sensitivity, "taxonomy_sensitivity", "0.9::DOUBLE", "0.8::DOUBLE"),
        (compare_sensitivity, "taxonomy_sensitivity", "WHEN 'last_weak' THEN value", "WHEN 'last_weak' THEN 9"),
        (compare_sensitivity, "taxonomy_sensitivity", "<> head_taxonomy.label", "= head_taxonomy.label"),
        (compare_diagnostics, "diagnostics", "avg(cos_last::DOUBLE)", "max(cos_last::DOUBLE)"),
        (compare_diagnostics, "diagnostics", "avg(norm_s_without_sink", "avg(norm_s_without_last"),
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
