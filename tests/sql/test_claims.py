"""What the paper claims: the verdict follows from where the interval lies, and stands beside that of the twin."""

from collections.abc import Iterator

import duckdb
import pytest

import sql
from storage.warehouse.relations import read_paper_claims
from tests.made_up import MadeUp, warehouse
from tests.sql.hand_made import break_statement

Ends = tuple[float, float] | None
"""Ends of an interval, from the threshold of its claim; None: there is none."""

CASES: list[tuple[str, Ends, str]] = [
    ("<=", (-0.4, 0), "supported"),
    ("<=", (-0.4, 0.01), "undecided"),
    ("<=", (0, 0.4), "undecided"),
    ("<=", (0.01, 0.4), "not supported"),
    ("<", (-0.4, -0.01), "supported"),
    ("<", (-0.4, 0), "undecided"),
    ("<", (-0.01, 0.1), "undecided"),
    ("<", (0, 0.1), "not supported"),
    (">=", (0, 0.1), "supported"),
    (">=", (-0.01, 0.1), "undecided"),
    (">=", (-0.4, 0), "undecided"),
    (">=", (-0.4, -0.01), "not supported"),
    (">", (0.01, 0.1), "supported"),
    (">", (0, 0.1), "undecided"),
    (">", (-0.1, 0.01), "undecided"),
    (">", (-0.1, 0), "not supported"),
    *((direction, None, "not testable") for direction in ("<=", "<", ">=", ">")),
]
"""Directions, intervals, and the verdict that follows."""

TWINS = [
    ("supported", "supported", False),
    ("supported", "not supported", True),
    ("supported", "not testable", True),
    ("supported", "undecided", None),
    *((verdict, "supported", None) for verdict in ("not supported", "undecided", "not testable")),
]
"""Verdicts on a study and on its twin, and whether that is a finding."""


@pytest.fixture(scope="module")
def whole() -> Iterator[duckdb.DuckDBPyConnection]:
    """Studies with a twin, without one, and with one that is not in the warehouse."""
    studies = (MadeUp("trained", twin="random"), MadeUp("random", layers=1), MadeUp("alone", layers=1))
    with warehouse(*studies, MadeUp("deserted", twin="missing", layers=1)) as connection:
        yield connection


@pytest.fixture
def changed(whole: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, and what a test changes there is forgotten."""
    whole.begin()
    yield whole
    whole.rollback()


def estimate(connection: duckdb.DuckDBPyConnection, study: str, claim: str, ends: Ends) -> None:
    """Give a claim an interval, and no reason."""
    (threshold,) = (found["threshold"] for found in read_paper_claims() if found["claim"] == claim)
    low, high = (None, None) if ends is None else (threshold + end for end in ends)
    connection.execute(
        "UPDATE claim_estimates SET value = $1, low = $1, high = $2, reason = NULL WHERE study = $3 AND claim = $4",
        [low, high, study, claim],
    )


def judged(connection: duckdb.DuckDBPyConnection, study: str, columns: str) -> dict[str, tuple[object, ...]]:
    rows = connection.execute(f"SELECT claim, {columns} FROM claims WHERE study = ?", [study]).fetchall()
    assert sorted(claim for claim, *_ in rows) == sorted(claim["claim"] for claim in read_paper_claims())
    return {claim: tuple(found) for claim, *found in rows}


def verdicts(connection: duckdb.DuckDBPyConnection) -> list[object]:
    """What is found for each of ``CASES``, of the first claim with its direction."""
    found: list[object] = []
    for direction, ends, _ in CASES:
        claim = next(claim["claim"] for claim in read_paper_claims() if claim["direction"] == direction)
        estimate(connection, "alone", claim, ends)
        found += judged(connection, "alone", "verdict")[claim]
    return found


def test_a_verdict_follows_from_the_whole_interval(changed: duckdb.DuckDBPyConnection) -> None:
    assert verdicts(changed) == [verdict for *_, verdict in CASES]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("high <= threshold\n", "value <= threshold\n"),
        ("high <= threshold\n", "high < threshold\n"),
        ("high < threshold\n            WHEN '>='", "high <= threshold\n            WHEN '>='"),
        ("low >= threshold\n            WHEN '>'", "low > threshold\n            WHEN '>'"),
        ("low > threshold\n        END AS within", "low >= threshold\n        END AS within"),
        ("WHEN '<=' THEN low > threshold", "WHEN '<=' THEN low >= threshold"),
        ("WHEN '<' THEN low >= threshold", "WHEN '<' THEN low > threshold"),
        ("WHEN '>=' THEN high < threshold", "WHEN '>=' THEN high <= threshold"),
        ("high <= threshold\n        END AS outside", "high < threshold\n        END AS outside"),
        (" OR low IS NULL OR high IS NULL", ""),
    ],
)
def test_the_comparison_notices_another_rule(
    changed: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    break_statement(monkeypatch, "claims", old, new)
    changed.execute(sql.read_statement("views", "claims").text)
    assert verdicts(changed) != [verdict for *_, verdict in CASES]


def test_a_reason_forbids_a_verdict(changed: duckdb.DuckDBPyConnection) -> None:
    claim = read_paper_claims()[0]["claim"]
    estimate(changed, "alone", claim, (-0.4, -0.3))
    assert judged(changed, "alone", "verdict, reason")[claim] == ("supported", None)
    changed.execute("UPDATE claim_estimates SET reason = 'no test' WHERE study = 'alone' AND claim = ?", [claim])
    assert judged(changed, "alone", "verdict, reason")[claim] == ("not testable", "no test")


def test_a_study_without_estimates_tests_nothing(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute("DELETE FROM claim_estimates WHERE study = 'alone'")
    found = judged(changed, "alone", "verdict, reason, rows, value")
    assert set(found.values()) == {("not testable", "the study was landed without estimates", 0, None)}


@pytest.mark.parametrize(("own", "of_twin", "finding"), TWINS)
def test_what_the_twin_supports_too_is_no_finding(
    changed: duckdb.DuckDBPyConnection, own: str, of_twin: str, finding: bool | None
) -> None:
    claim = next(claim["claim"] for claim in read_paper_claims() if claim["direction"] == ">=")
    ends = {verdict: ends for direction, ends, verdict in CASES if direction == ">="}
    for study, verdict in (("trained", own), ("random", of_twin), ("deserted", own), ("alone", own)):
        estimate(changed, study, claim, ends[verdict])
    asked = "twin, verdict, twin_verdict, finding"
    assert judged(changed, "trained", asked)[claim] == ("random", own, of_twin, finding)
    assert judged(changed, "deserted", asked)[claim] == ("missing", own, None, None)
    assert judged(changed, "alone", asked)[claim] == (None, own, None, None)


def test_a_twin_shows_its_own_numbers(whole: duckdb.DuckDBPyConnection) -> None:
    own = judged(whole, "random", "value, low, high, verdict")
    assert judged(whole, "trained", "twin_value, twin_low, twin_high, twin_verdict") == own
    assert len({verdict for *_, verdict in own.values()}) == 4


def test_claims_say_what_they_need() -> None:
    for claim in read_paper_claims():
        assert claim["direction"] in {"<=", "<", ">=", ">"}
        assert claim["least_rows"] >= 2, claim["claim"]
        assert claim["rows_of"], claim["claim"]
    assert len({claim["claim"] for claim in read_paper_claims()}) == len(
        {claim["statement"] for claim in read_paper_claims()}
    )
