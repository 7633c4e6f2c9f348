"""The pages of the docs are what the database and the statements say; text in them is harmless."""

from dataclasses import replace
from pathlib import Path

from storage.warehouse.documentation import format_cell, list_examples, render_example
from storage.warehouse.query import query
from tests.made_up import SMALL, warehouse
from tests.reports.conftest import HOSTILE

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_tour_in_the_docs_has_today_s_questions_statements_and_columns() -> None:
    page = (DOCS / "tour.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert len(sections) == len(list_examples())
    with warehouse(replace(SMALL, study="embedded")) as connection:
        for number, (section, example) in enumerate(zip(sections, list_examples(), strict=True), start=1):
            text = render_example(example, "embedded")
            assert section.startswith(f"{number}. {example.meaning}\n\n```sql\n{text}\n```\n\n"), (
                "run the command at the top of docs/tour.md"
            )
            header = section.split("```\n\n")[1].splitlines()[0]
            names = query(connection, text).schema.names
            assert header == f"| {' | '.join(format_cell(name) for name in names)} |"


def test_text_in_a_cell_is_no_markup() -> None:
    for text in HOSTILE:
        shown = format_cell(text)
        assert shown.isprintable()
        assert "\n" not in shown
        for mark in "<>|`&$*":
            assert shown.count(mark) == shown.count(f"\\{mark}") == text.count(mark)
