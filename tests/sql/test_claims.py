"""Measures, claims and their parts as tables: one follows from the other, by plain readings of mathematics §12."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims.judging import CLAIMS, find_measure
from reports.queries import read_query
from tests.made_up import warehouse
from tests.reports.conftest import TRAINED, TWIN
from tests.sql.checking import STUDY

Row = dict[str, Any]
Interval = Callable[[np.ndarray], tuple[float, float]]

NAMES = [STUDY.study, TRAINED.study, TWIN.study]


@pytest.fixture(scope="module")
def three() -> Iterator[duckdb.DuckDBPyConnection]:
    """A study with effects, one with a twin, and its twin."""
    with warehouse(STUDY, TRAINED, TWIN) as connection:
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, table: str, study: str) -> list[Row]:
    found: list[Row] = (
        connection.sql(f"FROM {table} WHERE study = $s", params={"s": study}).to_arrow_table().to_pylist()
    )
    return found


def values(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, dict[int, float]]:
    """The numbers of each measure, by sequence."""
    found: dict[str, dict[int, float]] = {}
    for row in rows(connection, "measure_values", study):
        found.setdefault(row["measure"], {})[row["sequence"]] = row["value"]
    return found


def span(numbers: np.ndarray) -> tuple[float, float]:
    """Error of the mean, times the quantile of Student's t."""
    half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers)
    return -half, half


def find_other_intervals(connection: duckdb.DuckDBPyConnection, interval: Interval) -> list[str]:
    """Measures whose interval is not that of their numbers; those that the domain clips are left out."""
    wrong = []
    for name in NAMES:
        numbers = values(connection, name)
        for row in rows(connection, "measures", name):
            measure, of_sequences = find_measure(row["measure"]), np.array(list(numbers[row["measure"]].values()))
            assert row["sequences"] == len(of_sequences)
            ends = [row[f"value{end}"] for end in ("", "_low", "_high")]
            if None in ends or {row["value_low"], row["value_high"]} & set(measure.domain):
                continue
            middle, low, high = (measure.scale.forward(end) for end in ends)
            found = (low - middle, high - middle)
            if found != pytest.approx(interval(of_sequences), rel=1e-6, abs=1e-12):
                wrong.append(f"{name} {row['measure']}")
    return wrong


def test_intervals_are_students_t_over_sequences(three: duckdb.DuckDBPyConnection) -> None:
    assert find_other_intervals(three, span) == []


@pytest.mark.parametrize(
    "interval",
    [
        lambda numbers: (-1.96 * stats.sem(numbers), 1.96 * stats.sem(numbers)),
        lambda numbers: tuple(np.array(span(numbers)) * math.sqrt(1 - 1 / len(numbers))),
    ],
    ids=["normal quantile", "sd with n"],
)
def test_the_comparison_notices_another_interval(three: duckdb.DuckDBPyConnection, interval: Interval) -> None:
    assert len(find_other_intervals(three, interval)) > 20


def test_most_measures_are_the_mean_of_their_numbers(three: duckdb.DuckDBPyConnection) -> None:
    """The others are means of means, such as the range of a curve over N, and have the jackknife's pseudo-values."""
    others = set()
    for name in NAMES:
        numbers = values(three, name)
        for row in rows(three, "measures", name):
            scale = find_measure(row["measure"]).scale
            mean = float(scale.back(float(np.mean(list(numbers[row["measure"]].values())))))
            if row["value"] != pytest.approx(mean, rel=1e-9, abs=1e-12):
                others.add(row["measure"].partition("[")[0])
    known = {row["measure"] for row in rows(three, "measures", STUDY.study)}
    assert len(others) < len(known) / 3


def test_a_twin_is_compared_sequence_by_sequence(three: duckdb.DuckDBPyConnection) -> None:
    own, other = values(three, TRAINED.study), values(three, TWIN.study)
    of_twin = {row["measure"]: row for row in rows(three, "measures", TWIN.study)}
    compared = 0
    for row in rows(three, "measures", TRAINED.study):
        name = row["measure"]
        assert [row[f"twin_{end}"] for end in ("value", "low", "high")] == [
            of_twin.get(name, {}).get(f"value{end}") for end in ("", "_low", "_high")
        ]
        shared = sorted(own[name].keys() & other.get(name, {}).keys())
        apart = np.array([own[name][at] - other[name][at] for at in shared])
        if len(apart) < 2 or np.ptp(apart) == 0:
            continue
        compared += 1
        assert row["twin_difference"] == pytest.approx(apart.mean())
        assert row["twin_difference_high"] - row["twin_difference"] == pytest.approx(span(apart)[1])
        assert row["twin_p"] == pytest.approx(stats.ttest_1samp(apart, 0).pvalue, rel=1e-6)
    assert compared > 10
    assert {row["twin_value"] for row in rows(three, "measures", TWIN.study)} == {None}


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_those_declared(three: duckdb.DuckDBPyConnection, name: str) -> None:
    found = {row["claim"]: row for row in rows(three, "claims", name)}
    assert {claim: row["statement"] for claim, row in found.items()} == {one.name: one.statement for one in CLAIMS}
    parts = rows(three, "claim_parts", name)
    for claim in CLAIMS:
        mine = sorted((row for row in parts if row["claim"] == claim.name), key=lambda row: row["part"])
        assert [row["part"] for row in mine] == list(range(len(mine)))
        assert {(row["measure"].partition("[")[0], row["direction"], row["threshold"]) for row in mine} <= {
            (part.measure.partition("[")[0], part.direction, part.threshold) for part in claim.parts
        }
        assert {row["is_alternative"] for row in mine} == {claim.alternatives}
        assert (found[claim.name]["reason"] is None) == (found[claim.name]["p"] is not None)


def find_other_verdicts(connection: duckdb.DuckDBPyConnection, *, corrected: bool = True) -> list[str]:
    """Claims whose p value or verdict is not that of their parts, all claims of a study together."""
    wrong = []
    for name in NAMES:
        parts: dict[str, list[Row]] = {}
        for row in rows(connection, "claim_parts", name):
            parts.setdefault(row["claim"], []).append(row)
        claims = [row for row in rows(connection, "claims", name) if row["reason"] is None]
        ranked = sorted(claims, key=lambda row: row["p"])
        holm = 0.0
        for rank, claim in enumerate(ranked):
            supports, opposes = (
                [part[f"p_{side}"] for part in parts[claim["claim"]]] for side in ("supports", "opposes")
            )
            count = len(supports)
            if parts[claim["claim"]][0]["is_alternative"]:
                sides = (min(1, count * min(supports)), max(opposes))
            else:
                sides = (max(supports), min(1, count * min(opposes)))
            holm = max(holm, min(1, (len(ranked) - rank) * claim["p"])) if corrected else claim["p"]
            decided = "supported" if sides[0] < sides[1] else "not supported"
            wanted = (min(1, 2 * min(sides)), holm, decided if holm <= 0.05 else "undecided")
            if (claim["p"], claim["p_holm"]) != pytest.approx(wanted[:2]) or claim["verdict"] != wanted[2]:
                wrong.append(f"{name} {claim['claim']}")
    return wrong


def test_verdicts_follow_from_the_parts_of_all_claims_together(three: duckdb.DuckDBPyConnection) -> None:
    assert find_other_verdicts(three) == []
    verdicts = {row["verdict"] for name in NAMES for row in rows(three, "claims", name)}
    assert verdicts >= {"not supported", "undecided", "not testable"}


def test_the_comparison_notices_another_rule(three: duckdb.DuckDBPyConnection) -> None:
    assert find_other_verdicts(three, corrected=False)


def test_p_values_are_those_of_a_t_test(three: duckdb.DuckDBPyConnection) -> None:
    """But for those that must also be beyond what random arrangements give, and so have larger ones."""
    larger, arranged = set(), set()
    for name in NAMES:
        numbers = values(three, name)
        arranged |= {row["measure"] for row in rows(three, "measures", name) if row["draws"] is not None}
        for part in rows(three, "claim_parts", name):
            of_sequences = np.array(list(numbers.get(part["measure"], {}).values()))
            value = {row["measure"]: row["value"] for row in rows(three, "measures", name)}.get(part["measure"])
            assert part["value"] == value
            if part["p_supports"] is None or len(of_sequences) < 4 or np.ptp(of_sequences) < 1e-9:
                continue
            scale = find_measure(part["measure"]).scale
            moved = of_sequences - of_sequences.mean() + scale.forward(value) if abs(value) < math.inf else of_sequences
            side = "greater" if part["direction"] in {">", ">="} else "less"
            p = stats.ttest_1samp(moved, scale.forward(part["threshold"]), alternative=side).pvalue
            if part["p_supports"] != pytest.approx(p, rel=1e-6, abs=1e-12):
                assert part["p_supports"] > p
                larger.add(part["measure"])
    assert larger
    assert larger <= arranged


def test_the_twins_verdict_stands_beside_a_claim(three: duckdb.DuckDBPyConnection) -> None:
    of_twin = {row["claim"]: row["verdict"] for row in rows(three, "claims", TWIN.study)}
    of_twin |= {claim.name: None for claim in CLAIMS if claim.exceeds_twin}
    for row in rows(three, "claims", TRAINED.study):
        assert (row["twin"], row["twin_verdict"]) == (TWIN.study, of_twin[row["claim"]])
        assert row["verdict"] == "supported" or row["beyond_twin"] is None
    for name in (STUDY.study, TWIN.study):
        assert {(row["twin"], row["beyond_twin"]) for row in rows(three, "claims", name)} == {(None, None)}


def test_claims_are_listed_with_the_measures_they_compare(three: duckdb.DuckDBPyConnection) -> None:
    asked = read_query("claims").text
    parts = rows(three, "claim_parts", TRAINED.study)
    found = three.sql(asked, params={"study": TRAINED.study}).to_arrow_table().to_pylist()
    for row in found:
        mine = sorted((part for part in parts if part["claim"] == row["claim"]), key=lambda part: part["part"])
        assert [part["measure"] for part in row["parts"]] == [part["measure"] for part in mine]
        assert [part["low"] for part in row["parts"]] == [part["value_low"] for part in mine]
    without = {row["claim"] for row in rows(three, "claims", TRAINED.study)} - {row["claim"] for row in found}
    assert without
    of_effects = three.sql(asked, params={"study": STUDY.study}).to_arrow_table().to_pylist()
    assert without < {row["claim"] for row in of_effects}
