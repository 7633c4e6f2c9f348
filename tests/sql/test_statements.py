"""The files of ``sql``: what they say of their inputs is true, and enough to create them in order."""

import re
from dataclasses import replace
from graphlib import CycleError

import pytest

import sql

CODE = [
    (kind, name)
    for kind in ("macros", "views", "derived", "queries", "tour", "checks", "findings")
    for name in sql.list_names(kind)
]
RELATIONS = {*sql.list_names("schema"), *sql.list_names("views")}
MACROS = set(sql.list_names("macros"))


def used(text: str) -> set[str]:
    """Names of tables, views and macros that a statement reads."""
    code = re.sub(r"--.*|'[^']*'", "", text)
    local = set(re.findall(r"\b(\w+)(?: \([\w, ]*\))? AS \(\s*(?:SELECT|VALUES|UNPIVOT|FROM)", code))
    clauses = re.findall(r"\b(?:FROM|JOIN)\s+\(?(?:FROM )?(\w+(?:, \w+)*)", code)
    read = {name for clause in clauses for name in clause.split(", ")}
    called = set(re.findall(r"\b(\w+)\(", code))
    return ((read & RELATIONS) - local) | (called & MACROS)


@pytest.mark.parametrize(("kind", "name"), CODE)
def test_the_header_names_every_input(kind: sql.StatementKind, name: str) -> None:
    statement = sql.read_statement(kind, name)
    stated = set(re.findall(r"\w+", statement.inputs))
    assert used(statement.text) - {name} <= stated


@pytest.mark.parametrize(("kind", "name"), CODE)
def test_the_header_names_every_parameter(kind: sql.StatementKind, name: str) -> None:
    statement = sql.read_statement(kind, name)
    code = re.sub(r"--.*", "", statement.text)
    if kind in {"queries", "tour"}:
        assert set(re.findall(r"\$\w+", code)) == set(re.findall(r"\$\w+", statement.inputs))
    else:
        assert set(re.findall(r"\$\w+", code)) == ({"$study"} if kind in {"derived", "checks"} else set())


def test_every_statement_comes_after_its_inputs() -> None:
    kinds: tuple[sql.StatementKind, ...] = ("macros", "views")
    found = [statement.name for statement in sql.sort_statements(*kinds)]
    assert sorted(found) == sorted([*sql.list_names("macros"), *sql.list_names("views")])
    for kind in kinds:
        for name in sql.list_names(kind):
            earlier = used(sql.read_statement(kind, name).text) & set(found) - {name}
            assert all(found.index(other) < found.index(name) for other in earlier), name
    assert [statement.name for statement in sql.sort_statements(*kinds)] == found


def test_a_circle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sql.read_statement
    monkeypatch.setattr(
        sql,
        "read_statement",
        lambda kind, name: replace(whole(kind, name), inputs="margins" if name == "tail" else "tail"),
    )
    with pytest.raises(CycleError):
        list(sql.sort_statements("macros", "views"))


def test_every_derived_table_is_in_the_schema() -> None:
    assert set(sql.list_names("derived")) <= set(sql.list_names("schema"))
