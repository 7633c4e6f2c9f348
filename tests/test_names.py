"""Functions are verbs."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "attention_geometry",
    "benchmarks",
    "dagster_project",
    "extract",
    "gallery",
    "geometry",
    "reports",
    "sql",
    "storage",
    "model_training",
)

PREPOSITIONS = {
    "across", "against", "along", "as", "at", "before", "beside", "beyond", "by", "for", "from", "in", "into", "of",
    "on", "over", "per", "to", "under", "until", "with", "within", "without",
}  # fmt: skip
PARTICIPLES = {
    "begun", "built", "chosen", "done", "drawn", "found", "given", "gone", "held", "hidden", "kept", "known", "left",
    "lost", "made", "meant", "said", "seen", "sent", "shown", "sought", "swept", "taken", "told", "written",
}  # fmt: skip
VERBS = {"bring", "embed", "exceed", "feed", "need", "seed", "speed"}
"""Verbs that end as participles do."""

ALLOWED = {
    "on_end",  # called by numba
    "on_start",  # called by numba
    "ring",  # the mark of a chart that it returns
    "to_arrow",  # conversions are named like this in pandas and Arrow
    "to_dict",  # called by Altair
    "with_read_only",  # called by zarr
}


def begins_with_no_verb(name: str) -> bool:
    first = name.lstrip("_").partition("_")[0]
    return first in PREPOSITIONS | PARTICIPLES or (first.endswith(("ed", "ing")) and first not in VERBS)


@cache
def walk(source: str) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(ast.parse(source)))


def functions(source: str) -> Iterator[str]:
    """The names of functions and methods, except properties and constructors of classes."""
    for node in walk(source):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
            if not decorators & {"property", "cached_property", "classmethod"}:
                yield node.name


def test_names_of_functions_begin_with_a_verb() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {name: path for path in paths for name in functions(path.read_text(encoding="utf-8"))}
    refused = {name: path for name, path in found.items() if begins_with_no_verb(name)}
    assert {name: path for name, path in refused.items() if name not in ALLOWED} == {}
    assert set(refused) == ALLOWED, "what is allowed exists and would be refused"


@pytest.mark.parametrize("name", ["_drawn", "beside", "by_recall", "stopping", "_of_layer", "kept"])
def test_other_names_are_noticed(name: str) -> None:
    source = f"class Head:\n    def {name}(self): ...\n    @property\n    def of(self): ..."
    assert [one for one in functions(source) if begins_with_no_verb(one)] == [name]
