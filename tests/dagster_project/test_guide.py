"""``attention-geometry tour`` and ``schema``: questions with answers, statements to paste, and what there is."""

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from storage.files.root import warehouse_of
from storage.warehouse.connection import locate_database
from storage.warehouse.documentation import list_examples, render_example, render_schema_page
from storage.warehouse.relations import create_relations, create_tables, derive
from tests.dagster_project.driver import attention_geometry, files
from tests.made_up import SMALL, insert, tables

STUDY = replace(SMALL, study="mine")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the made-up study ``mine``, as if it had landed."""
    home = tmp_path_factory.mktemp("made_up")
    warehouse_of(home).mkdir()
    with duckdb.connect(locate_database(warehouse_of(home), STUDY.study)) as connection:
        create_tables(connection)
        create_relations(connection)
        for table, rows in tables(STUDY).items():
            insert(connection, table, rows)
        derive(connection, STUDY.study)
    return home


def test_the_tour_lists_its_questions_without_any_data(tmp_path: Path) -> None:
    shown = attention_geometry("tour", home=tmp_path, COLUMNS="200")
    assert (shown.code, shown.errors) == (0, "")
    assert all(
        f" {number}   {example.meaning}" in shown.text for number, example in enumerate(list_examples(), start=1)
    )
    assert files(tmp_path) == {}


def test_a_question_shows_its_statement_and_its_answer(mine: Path) -> None:
    shown = attention_geometry("tour", 11, home=mine)
    assert (shown.code, shown.errors) == (0, "")
    assert list_examples()[10].meaning in shown.text
    assert render_example(list_examples()[10], "mine") in shown.text
    assert shown.text.split(";\n", 1)[1].split()[:4] == ["layer", "Retriever", "Mixer", "Reset"]


def test_a_statement_alone_can_be_sent_to_sql(mine: Path) -> None:
    statement = attention_geometry("tour", 20, "--study", "mine", "--sql", home=mine)
    assert statement.text == f"-- {list_examples()[19].meaning}\n{render_example(list_examples()[19], 'mine')}\n"
    rows = json.loads(attention_geometry("sql", "--format", "json", home=mine, stdin=statement.text).text)
    assert sorted((row["layer"], row["head"]) for row in rows) == [
        (layer, head) for layer in range(STUDY.layers) for head in range(STUDY.heads)
    ]


def test_the_page_has_every_question_and_answers_of_the_study(mine: Path) -> None:
    page = attention_geometry("tour", "--format", "markdown", home=mine).text
    assert page.count("\n## ") == page.count("\n```sql\n") == len(list_examples())
    assert "Results are of the study mine." in page


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1000,), f"The tour has no question 1000; choose from 1 to {len(list_examples())}"),
        ((0,), "The tour has no question 0"),
        ((3, "--study", "other"), "There is no landed study 'other'; choose from mine"),
        ((3, "--format", "html"), "--format html is unknown; choose from table, markdown"),
        ((7, "--format", "markdown"), "--format markdown prints the page of all questions"),
        (("--sql", "--format", "markdown"), "--format markdown prints the page of all questions"),
        (("--sql",), "--sql prints the statement of one question"),
    ],
)
def test_mistakes_are_one_line(mine: Path, arguments: tuple[object, ...], said: str) -> None:
    assert said in attention_geometry("tour", *arguments, home=mine).complaint


def test_without_a_landed_study_there_is_a_way_to_one(tmp_path: Path) -> None:
    assert "attention-geometry run embedded" in attention_geometry("tour", 1, home=tmp_path).complaint


def test_the_schema_lists_what_there_is_and_describes_one() -> None:
    assert attention_geometry("schema", "--format", "markdown").text == render_schema_page()
    listed = attention_geometry("schema").text
    assert all(name in listed for name in ("selection_counts", "claims", "best_n", "f_score"))
    described = attention_geometry("schema", "selection").text
    assert described.startswith("view selection\none row per (study, sequence, query, layer, head, n)\n")
    assert "f_r_min" in described
    assert "best_n(measure := 'f_r_max', first_n := 2, last_n := NULL)" in attention_geometry("schema", "best_n").text
    assert "no table, view or macro 'selections'" in attention_geometry("schema", "selections").complaint
    refused = attention_geometry("schema", "selection", "--format", "markdown").complaint
    assert "omit it to see 'selection'" in refused
