"""The catalogue: a page with every table, view and macro of the warehouse, to search and to browse."""

import re
from collections.abc import Mapping, Sequence

from reports.queries import find_queries, read_query
from reports.rendering import render
from storage.warehouse.documentation import KINDS, SCHEMA_COMMAND, Relation, find_names, list_relations

_DOMAIN = re.compile(r" (?P<left>[\[(])(?P<low>-?(?:inf|[\d.]+)), (?P<high>inf|[\d.-]+)(?P<right>[\])])$")
_UNIT = re.compile(r"\bin (model units|nats|tokens|keys|positions|bits|bytes|seconds|radians|degrees)\b")


def render_catalogue() -> str:
    """The page as HTML, which is the same for all warehouses of this version."""
    relations = {relation.name: relation for relation in list_relations()}
    inputs = {name: [read for read in find_names(one.inputs) if read in relations] for name, one in relations.items()}
    questions = [read_query(name) for name in find_queries()]
    return render(
        "catalogue.html.j2",
        further=("catalogue.js",),
        style="catalogue.css",
        relations={kind: [one for one in relations.values() if one.kind == kind] for kind in KINDS},
        inputs=inputs,
        readers={name: [other for other, read in inputs.items() if name in read] for name in relations},
        shown_by={name: [one.meaning for one in questions if name in find_names(one.inputs)] for name in relations},
        columns={  # name, type, meaning and unit
            name: [
                (column, kind.lower(), _DOMAIN.sub("", text), _find_unit(column, text, inputs[name], relations))
                for column, kind, text in one.columns
            ]
            for name, one in relations.items()
        },
        command=SCHEMA_COMMAND,
    )


def _find_unit(column: str, comment: str, origins: Sequence[str], relations: Mapping[str, Relation]) -> str:
    """The unit of a column and the range of its values, or of the column of this name in what it is made from."""
    column = re.sub("_(low|high)$", "", column)
    same = (text for origin in origins for other, _, text in relations[origin].columns if other == column)
    return next((unit for text in (comment, *same) if (unit := describe_unit(text))), "")


def describe_unit(comment: str) -> str:
    """The unit of a column and the range of its values, as its comment tells them; empty if it does not."""
    domain, unit = _DOMAIN.search(comment), _UNIT.search(comment)
    parts = [unit[1]] if unit else []
    if domain:
        low, high = domain["low"], domain["high"]
        least = f"{'≥' if domain['left'] == '[' else '>'} {low}" if low != "-inf" else ""
        most = f"{'≤' if domain['right'] == ']' else '<'} {high}" if high != "inf" else ""
        parts.append(f"{low} to {high}" if least and most else least or most)
    return ", ".join(filter(None, parts)).replace("-", "−")
