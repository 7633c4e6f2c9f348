"""The tables of a family: trends, paired differences, planted onsets, selections, and members that are missing."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dagster_project.analysis import families
from dagster_project.analysis.families import Member, compute_family
from dagster_project.study.families import Family
from geometry.statistics.intervals import estimate_difference, estimate_mean
from reports.overviews import write_family
from storage.errors import UserError
from storage.warehouse.connection import connect
from storage.warehouse.documentation import list_examples, render_example
from storage.warehouse.landing import land_family
from storage.warehouse.query import query
from storage.warehouse.rows import build_batch
from tests.reports.pages import Page, unpacked

LAYER, HEAD = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
PLANTED = 5  # The member, of nine, from which on head 1 of layer 1 has a sink


def make_member(study: str, number: int, *, tokens: int = 0, planted: bool = True) -> Member:
    """A made-up member of four heads, of which one attends to the sink from ``PLANTED`` on."""
    generator = np.random.default_rng(number)
    sink = generator.uniform(0.05, 0.1, (6, 4))
    if planted and number >= PLANTED:
        sink[:, 3] += 0.6
    recall = generator.uniform(0.2, 0.4, (6, 4)) + number / 100
    recall[0, 0] = np.nan
    order = generator.permuted(np.tile(np.arange(9), (6, 4, 1)), axis=-1)  # nine keys, and seven places without one
    return Member(
        study,
        np.arange(12).reshape(6, 2) + tokens,
        LAYER,
        HEAD,
        {"sink_weight": sink, "pattern_sink": sink, "recall[4]": recall},
        {"auc_over_random": recall[:, 1] - 0.3},
        {
            "auc_over_random": (0.1, 0.05, 0.15, 6),
            "recall_compared": (0.3 + number / 100, 0.25, 0.45, 6),
            "recall_of_random": (0.1, 0.08, 0.12, 6),
        },
        (("a_claim", "Heads separate", "supported" if number else "undecided", 0.01),),
        np.pad(order, ((0, 0), (0, 0), (0, 7)), constant_values=-1),
    )


def land(
    folder: Path, monkeypatch: pytest.MonkeyPatch, members: Mapping[str, Member | None]
) -> duckdb.DuckDBPyConnection:
    """Land the tables of a family of made-up members; None stands for one that has not landed."""
    monkeypatch.setattr(families, "read_member", lambda _, study: members[study])
    family = Family("steps", "revision", {study: study.removeprefix("steps-") for study in members})
    origins = {study: member and "made" for study, member in members.items()}
    folder.mkdir(exist_ok=True)
    land_family(folder, "steps", compute_family(family, folder, origins))
    return connect(folder)


def nine(*, planted: bool = True, missing: tuple[int, ...] = ()) -> dict[str, Member | None]:
    return {
        f"steps-{number}": None if number in missing else make_member(f"steps-{number}", number, planted=planted)
        for number in range(9)
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of nine members, of which one has not landed, and the last has other text."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        land(folder, patch, nine(missing=(2,)) | {"steps-8": make_member("steps-8", 8, tokens=1)}).close()
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect(folder)) as connection:
        yield connection


def find_onset(connection: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    place = "quantity = 'sink_weight' AND layer = 1 AND head = 1"
    found = connection.execute(f"SELECT state, study, last_below, first_above FROM onsets WHERE {place}").fetchall()
    assert len(found) == 1
    return tuple(found[0])


TOLD = ("study", "last_below", "first_above")
RISING = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7]


@pytest.mark.parametrize(
    ("value", "half", "threshold", "expected"),
    [
        (RISING, 0.05, 0.4, ("appears", 4, 3, 4)),  # the interval of member 3 ends at the threshold
        (RISING, 0.08, 0.4, ("appears", 4, 2, 4)),  # that of member 3 holds it
        (RISING, 0.15, 0.4, ("appears", 4, 2, 5)),  # and that of member 4
        (RISING, 0.35, 0.4, ("undecided", None, None, None)),  # and that of the last one
        (RISING, 0.05, 0.9, ("never", None, None, None)),
        (RISING, 0.25, 0.9, ("undecided", None, None, None)),
        ([0.9, 0.9, 0.1], 0.05, 0.4, ("never", None, None, None)),  # it was above
        (RISING, 0.05, -0.1, ("always", None, None, None)),
        (RISING, 0.15, -0.1, ("undecided", None, None, None)),
        ([0.0, 0.9, 0.1, 0.8, 0.8], 0.05, 0.4, ("appears", 3, 2, 3)),  # it falls again in between
        ([0.0, np.nan, np.nan, 0.9], 0.05, 0.4, ("appears", 3, 0, 3)),
        ([np.nan, np.nan], 0.05, 0.4, ("undecided", None, None, None)),
        ([0.0, 0.9], np.nan, 0.4, ("undecided", None, None, None)),  # one sequence has no interval
    ],
)
def test_onsets(
    value: list[float], half: float, threshold: float, expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "ONSETS", {"recall": threshold})
    members, values = [str(member) for member in range(len(value))], np.array(value)
    ends = {"value": values, "value_low": values - half, "value_high": values + half}
    (found,) = families.find_onsets([build_batch({"study": pa.array(members)} | ends, quantity="recall")], members)
    told = {name: str(place) for name, place in zip(TOLD, expected[1:], strict=True) if place is not None}
    assert found.select(["state", *TOLD]).to_pylist() == [dict.fromkeys(TOLD) | {"state": expected[0]} | told]


def test_a_planted_onset_is_found_and_none_where_there_is_none(
    whole: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_onset(whole) == ("appears", "steps-5", "steps-4", "steps-5")
    states = dict(whole.execute("SELECT state, count(*) FROM onsets GROUP BY ALL").fetchall())
    assert states["appears"] >= 2, "the layer's mean exceeds 0.3 as well"
    others = "SELECT DISTINCT state FROM onsets WHERE quantity = 'sink_weight' AND layer = 0"
    assert whole.execute(others).fetchall() == [("never",)]
    assert whole.execute(
        "SELECT state FROM onsets WHERE quantity = 'auc_over_random' AND layer IS NULL"
    ).fetchall() == [("always",)]
    with closing(land(tmp_path, monkeypatch, nine(planted=False))) as connection:
        assert find_onset(connection) == ("never", None, None, None)
        assert connection.execute("SELECT count(*) FROM onsets WHERE state = 'appears'").fetchall() == [(0,)]


def test_members_that_have_not_landed_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = nine(missing=(0, 4, 5)) | {"steps-8": make_member("steps-8", 8, tokens=1)}  # of other text
    with closing(land(tmp_path, monkeypatch, members)) as connection:
        listed = connection.execute(
            "SELECT study, landed, alike, sequences FROM family_members ORDER BY member"
        ).fetchall()
        assert [row[0] for row in listed] == [f"steps-{number}" for number in range(9)]
        assert [number for number, row in enumerate(listed) if not row[1]] == [0, 4, 5]
        assert all(row[2:] == ((row[0] != "steps-8", 6) if row[1] else (None, None)) for row in listed)
        assert find_onset(connection) == ("appears", "steps-6", "steps-3", "steps-6")
        trends = connection.execute("SELECT DISTINCT study FROM family_trends ORDER BY ALL").fetchall()
        assert trends == [(f"steps-{number}",) for number in (1, 2, 3, 6, 7, 8)]
        pairs = "SELECT DISTINCT study, reference FROM family_differences WHERE is_previous ORDER BY ALL"
        assert ("steps-6", "steps-3") in connection.execute(pairs).fetchall()
        check_shared_keys(connection)


def check_shared_keys(connection: duckdb.DuckDBPyConnection) -> None:
    """They are those of both selections, of members with the same text and the one that landed before them."""
    found = connection.execute(
        "SELECT n, shared, alike, sequences FROM family_overlaps "
        "WHERE study = 'steps-6' AND reference = 'steps-3' AND layer = 1 AND head = 0 ORDER BY n"
    ).fetchall()
    one, other = (make_member(f"steps-{number}", number).top_keys[:, 2].tolist() for number in (6, 3))
    assert [row[0] for row in found] == [1, 2, 3, 4, 6, 8], "the head has nine keys"
    for n, shared, alike, sequences in found:
        common = [len(set(a[:n]) & set(b[:n])) for a, b in zip(one, other, strict=True)]
        assert (shared, alike, sequences) == (pytest.approx(np.mean(common) / n), common.count(n), 6)
    studies = connection.execute("SELECT DISTINCT study FROM family_overlaps ORDER BY ALL").fetchall()
    assert studies == [(f"steps-{number}",) for number in (2, 3, 6, 7)]


def test_trends_and_differences_are_those_of_the_sequences(whole: duckdb.DuckDBPyConnection) -> None:
    rows = whole.execute(
        "SELECT value, value_low, value_high, sequences FROM family_trends "
        "WHERE study = 'steps-1' AND quantity = 'recall[4]' ORDER BY layer, head"
    ).fetchall()
    member, first, other = (make_member(f"steps-{number}", number) for number in (1, 0, 8))
    expected = estimate_mean(member.of_heads["recall[4]"], (0, 1))
    np.testing.assert_allclose([row[0] for row in rows], expected.value)
    np.testing.assert_allclose([row[1] for row in rows], expected.low)
    assert [row[3] for row in rows] == [5, 6, 6, 6]
    for study, paired, now in (("steps-1", True, member), ("steps-8", False, other)):
        found = whole.execute(
            "SELECT difference, difference_low, difference_high, paired FROM family_differences WHERE study = ? "
            "AND is_first AND quantity = 'recall[4]' ORDER BY layer, head", [study]
        ).fetchall()  # fmt: skip
        wanted = estimate_difference(now.of_heads["recall[4]"], first.of_heads["recall[4]"], paired=paired)
        np.testing.assert_allclose([row[:3] for row in found], np.transpose([wanted.value, wanted.low, wanted.high]))
        assert {row[3] for row in found} == {paired}
    layers = whole.execute(
        "SELECT layer, value FROM family_trends_model WHERE study = 'steps-1' AND quantity = 'sink_weight' "
        "ORDER BY layer NULLS LAST"
    ).fetchall()
    sink = member.of_heads["sink_weight"]
    assert [layer for layer, _ in layers] == [0, 1, None]
    np.testing.assert_allclose([value for _, value in layers], [sink[:, :2].mean(), sink[:, 2:].mean(), sink.mean()])
    measured = (
        "SELECT value, value_low FROM family_trends_model WHERE quantity = 'auc_over_random' AND study = 'steps-1'"
    )
    assert whole.execute(measured).fetchall() == [(0.1, 0.05)]
    verdicts = "SELECT verdict FROM family_claims WHERE study IN ('steps-0', 'steps-1') ORDER BY study"
    assert whole.execute(verdicts).fetchall() == [("undecided",), ("supported",)]


def test_a_family_is_replaced_as_a_whole_or_not_at_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    with caplog.at_level(logging.WARNING), closing(connect(copied)) as connection:
        before = connection.execute("FROM family_trends ORDER BY ALL").fetchall()
    assert not caplog.records, "the database of a family counts as one of an earlier version"
    wrong = nine()
    broken = wrong["steps-3"]
    assert broken is not None
    object.__setattr__(broken, "claims", (*broken.claims, *broken.claims))
    with pytest.raises(UserError, match="break the check keys_once"):
        land(copied, monkeypatch, wrong)
    with closing(connect(copied)) as connection:
        assert connection.execute("FROM family_trends ORDER BY ALL").fetchall() == before
    assert [path.name for path in copied.glob("*.partial*")] == []


@pytest.mark.slow
def test_the_page_of_a_family_shows_its_numbers(whole: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    links = {"steps-1": "../reports/steps-1.html"}
    path = write_family(whole, "steps", tmp_path / "page.html", home="../index.html", reports=links)
    with pytest.raises(UserError, match="holds nothing of the family 'other'"):
        write_family(whole, "other", tmp_path / "other.html", home="", reports={})
    page = Page(path)
    text = " ".join(path.read_text(encoding="utf-8").split())
    assert "9 studies by revision" in text
    assert "Without results: 2." in text
    assert '<a href="../reports/steps-1.html">1</a>' in text
    charts = unpacked(next(shown for _, shown in page.find("script", id="charts")))["charts"]
    drawn = {chart["key"]: chart["spec"] for chart in charts}
    for key in ("beside-chance-recall", "trends-of-model-1", "layers-of-members-1", "family-claims"):
        (rows,) = (rows for rows in drawn[key]["datasets"].values() if "label" in rows[0])
        places = {row["label"]: row for row in rows}
        assert list(places) == [str(number) for number in range(9)], "a member has no place on the axis"
        lacking = {label for label, row in places.items() if row.get("value", row.get("verdict")) is None}
        assert lacking == {"2"}, "the member that is missing is not shown as missing"
    (traced,) = (rows for rows in drawn["traces-sink-weight"]["datasets"].values() if "appears" in rows[0])
    marked = [row for row in traced if row["appears"]]
    assert {(row["layer"], row["head"]) for row in marked} == {(1, 1)}
    assert len(marked) == 8


def test_the_tour_answers_questions_about_families(whole: duckdb.DuckDBPyConnection) -> None:
    examples = {example.name: example for example in list_examples()}
    sinks, changed, recall, others = (
        query(whole, render_example(examples[name], "no study")).read_all().to_pylist()
        for name in examples
        if "$study" not in examples[name].code and name[:2] in {"30", "31", "32", "33"}
    )
    assert [(row["layer"], row["layer_state"], row["heads_appear"], row["heads"]) for row in sinks] == [
        (0, "never", 0, 2),
        (1, "appears", 1, 2),
    ]
    assert [(row["quantity"], row["layer"], row["head"], row["change"]) for row in changed] == [
        ("pattern_sink", 1, 1, "gained")
    ]
    assert [row["recall"] for row in recall] == [None if n == 2 else pytest.approx(0.3 + n / 100) for n in range(9)]
    assert len([row for row in others if row["study"] == "steps-7"]) == 4 == others[0]["heads_that_differ"]


def test_patterns_are_those_of_the_study_s_own_text() -> None:
    statement, _ = families.QUANTITIES["pattern_previous"]
    rows = "(VALUES ('corpus', 0.5), ('probe', 0.9)) AS given (text, previous)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE head_patterns AS SELECT 0 AS sequence, 1 AS layer, 2 AS head, * FROM {rows}")
        assert connection.execute(statement).fetchall() == [(0, 1, 2, 0.5)]
