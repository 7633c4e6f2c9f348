"""``attention-geometry tour`` and ``schema``: questions with answers, statements to paste, and what there is."""

import json
from pathlib import Path

import pytest

from reports.overviews import render_catalogue
from storage.warehouse.documentation import list_examples, render_example
from tests.dagster_project.driver import attention_geometry, files
from tests.sql.checking import STUDY


def test_the_tour_lists_its_questions_without_any_data(tmp_path: Path) -> None:
    shown = attention_geometry("tour", home=tmp_path, COLUMNS="200")
    assert (shown.code, shown.errors) == (0, "")
    assert all(
        f" {number}   {example.meaning}" in shown.text for number, example in enumerate(list_examples(), start=1)
    )
    assert files(tmp_path) == {}


def test_a_question_shows_its_statement_and_its_answer(landed_root: Path) -> None:
    shown = attention_geometry("tour", 11, home=landed_root)
    assert (shown.code, shown.errors) == (0, "")
    assert list_examples()[10].meaning in shown.text
    assert render_example(list_examples()[10], "small") in shown.text
    assert shown.text.split(";\n", 1)[1].split()[:4] == ["layer", "Retriever", "Mixer", "Reset"]


def test_a_statement_alone_can_be_sent_to_sql(landed_root: Path) -> None:
    statement = attention_geometry("tour", 20, "--study", "small", "--sql", home=landed_root)
    assert statement.text == f"-- {list_examples()[19].meaning}\n{render_example(list_examples()[19], 'small')}\n"
    rows = json.loads(attention_geometry("sql", "--format", "json", home=landed_root, stdin=statement.text).text)
    assert sorted((row["layer"], row["head"]) for row in rows) == [
        (layer, head) for layer in range(STUDY.layers) for head in range(STUDY.heads)
    ]


def test_the_page_has_every_question_and_answers_of_the_study(landed_root: Path) -> None:
    page = attention_geometry("tour", "--format", "markdown", home=landed_root).text
    assert page.count("\n## ") == page.count("\n```sql\n") == len(list_examples())
    assert "Results are of the study small." in page


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1000,), f"The tour has no question 1000; choose from 1 to {len(list_examples())}"),
        ((0,), "The tour has no question 0"),
        ((3, "--study", "other"), "There is no landed study 'other'; choose from small"),
        ((3, "--format", "html"), "--format html is unknown; choose from table, markdown"),
        ((7, "--format", "markdown"), "--format markdown prints the page of all questions"),
        (("--sql", "--format", "markdown"), "--format markdown prints the page of all questions"),
        (("--sql",), "--sql prints the statement of one question"),
    ],
)
def test_mistakes_are_one_line(landed_root: Path, arguments: tuple[object, ...], said: str) -> None:
    assert said in attention_geometry("tour", *arguments, home=landed_root).complaint


def test_without_a_landed_study_there_is_a_way_to_one(tmp_path: Path) -> None:
    assert "attention-geometry run embedded" in attention_geometry("tour", 1, home=tmp_path).complaint


def test_the_schema_lists_what_there_is_and_describes_one() -> None:
    assert attention_geometry("schema", "--html").text == render_catalogue()
    listed = attention_geometry("schema").text
    assert all(name in listed for name in ("selection_counts", "claims", "best_n", "f_score"))
    described = attention_geometry("schema", "selection").text
    assert described.startswith("view selection\none row per (study, sequence, query, layer, head, n)\n")
    assert "f_r_min" in described
    assert "best_n(measure := 'f_r_max', first_n := 2, last_n := NULL)" in attention_geometry("schema", "best_n").text
    assert "no table, view or macro 'selections'" in attention_geometry("schema", "selections").complaint
    refused = attention_geometry("schema", "selection", "--html").complaint
    assert "omit it to see 'selection'" in refused
