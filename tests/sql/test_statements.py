"""The files of ``sql`` and the queries of ``reports``: what they say of their inputs is true."""

import re
from dataclasses import replace

import sql
from reports.queries import find_queries, read_query

KINDS: tuple[sql.StatementKind, ...] = ("macros", "views", "derived", "tour", "checks")
CODE = [sql.read_statement(kind, name) for kind in KINDS for name in sql.list_names(kind)]
CODE += [read_query(name) for name in find_queries()]
RELATIONS = {*sql.list_names("schema"), *sql.list_names("families"), *sql.list_names("views")}
MACROS = set(sql.list_names("macros"))


def used(text: str) -> set[str]:
    """Names of tables, views and macros that a statement reads."""
    code = re.sub(r"--.*|'[^']*'", "", text)
    local = set(re.findall(r"\b(\w+)(?: \([\w, ]*\))? AS \(\s*(?:SELECT|VALUES|UNPIVOT|FROM)", code))
    clauses = re.findall(r"\b(?:FROM|JOIN)\s+\(?(?:FROM )?(\w+(?:, \w+)*)", code)
    read = {name for clause in clauses for name in clause.split(", ")}
    called = set(re.findall(r"\b(\w+)\(", code))
    return ((read & RELATIONS) - local) | (called & MACROS)


def find_unnamed(statement: sql.Statement) -> set[str]:
    """What a statement reads, or asks for as a parameter, that its header does not name."""
    inputs = used(statement.text) - {statement.name} - set(re.findall(r"\w+", statement.inputs))
    code = re.sub(r"--.*", "", statement.text)
    if statement.kind in {"queries", "tour"}:
        asked = set(re.findall(r"\$\w+", statement.inputs))
    else:
        asked = {"$study"} if statement.kind in {"derived", "checks"} else set()
    return inputs | (set(re.findall(r"\$\w+", code)) ^ asked)


def test_headers_name_every_input_and_parameter() -> None:
    assert {f"{one.kind}/{one.name}": missing for one in CODE if (missing := find_unnamed(one))} == {}


def test_an_input_or_parameter_that_a_header_leaves_out_is_noticed() -> None:
    """Of each kind of statement that reads something."""
    read_something = [statement for statement in CODE if used(statement.text) - {statement.name}]
    assert {statement.kind for statement in read_something} == {*KINDS, "queries"}
    assert all(find_unnamed(replace(statement, inputs="")) for statement in read_something)
    asking = [statement for statement in CODE if "$" in statement.text]
    assert all(find_unnamed(replace(one, text=one.text.replace("$", "$other_"))) for one in asking)
