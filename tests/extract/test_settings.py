"""The queries of a study: what may be asked for, and what is said of the rest."""

import pytest

from dagster_project.studies import parse_study
from storage.errors import UserError

GIVEN = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 1}
QUERY_FIELD = "studies.yaml: study 'one', field 'queries': "


@pytest.mark.parametrize(
    ("queries", "positions"),
    [(None, (63,)), (7, (7,)), ([7], (7,)), ([63, 1, 7], (1, 7, 63)), ((1, 7, 63), (1, 7, 63))],
)
def test_queries_are_positions_in_ascending_order(queries: object, positions: tuple[int, ...]) -> None:
    study = parse_study("one", GIVEN | {"queries": queries}, "studies.yaml")
    assert study.query_positions == study.extraction().query_positions == positions
    assert study.queries == (None if queries is None else positions)
    for form in ("json", "python"):
        assert parse_study("one", study.model_dump(mode=form), "studies.yaml") == study


def test_a_study_that_names_no_queries_has_the_settings_it_had() -> None:
    study = parse_study("one", GIVEN, "studies.yaml")
    assert study.model_dump(mode="json")["queries"] is None
    assert study == parse_study("one", GIVEN | {"queries": None}, "studies.yaml")
    assert study != parse_study("one", GIVEN | {"queries": 63}, "studies.yaml")


NO_POSITIONS = "input should be a position or a list of positions, whole numbers from 1, found "


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ([], "input should name 1 to 64 positions, not 0, found [] (positions of the queries"),
        (list(range(1, 66)), "input should name 1 to 64 positions, not 65, found [1, 2, "),
        ([7, 9, 7], "input should name every position once, found [7, 9, 7]"),
        ([0, 7], "positions should be 1 or more: the query at 0 has one key, nothing to choose from, found [0, 7]"),
        (0, "positions should be 1 or more: the query at 0 has one key, nothing to choose from, found 0"),
        ([-1], "positions should be 1 or more: the query at 0 has one key, nothing to choose from, found [-1]"),
        ([7, 64], "positions should be below context_length, which is 64, found [7, 64]"),
        (1000, "positions should be below context_length, which is 64, found 1000"),
        ([7, "9"], f"{NO_POSITIONS}[7, '9']"),
        ([True], f"{NO_POSITIONS}[True]"),
        ([7.5], f"{NO_POSITIONS}[7.5]"),
        ([[7]], f"{NO_POSITIONS}[[7]]"),
        ("last", f"{NO_POSITIONS}'last'"),
        ({"first": 7}, f"{NO_POSITIONS}{{'first': 7}}"),
    ],
)
def test_queries_with_an_error(queries: object, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_study("one", GIVEN | {"queries": queries}, "studies.yaml")
    message = str(caught.value)
    assert message.startswith(f"{QUERY_FIELD}{said}")
    assert "more)" not in message
    assert "\n" not in message


def test_queries_without_a_length_do_not_hide_that_it_is_missing() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "context_length"}
    with pytest.raises(UserError, match=r"field 'context_length' is missing; add it \(tokens in each sequence\)$"):
        parse_study("one", given | {"queries": [7]}, "studies.yaml")
