"""Hand-written YAML: duplicate keys are errors, and documents that would take much time or memory are refused."""

from collections.abc import Hashable
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

DEEPEST = 32
"""Most levels of nesting; ``studies.yaml`` has five."""

MOST_ALIASES = 1000
"""Most references to anchors: each may expand to a document as large as the rest."""

MOST_EVENTS = 2**16
"""Most values, and beginnings and ends of lists and mappings: those of a thousand studies."""

LARGEST = 10_000_000
"""Most characters of a document."""


EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads a document ten times as fast where PyYAML is compiled, but quotes no lines in errors."""


class _StrictLoader(yaml.SafeLoader):
    """A loader of plain values that refuses duplicate keys, and values that Python cannot hold or print."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct the value of a node; ``ConstructorError`` for a date that does not exist, or a very long number."""
        try:
            made = super().construct_object(node, deep)
            str(made if isinstance(made, int) else "")
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error
        return made

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct the mapping of a node; ``ConstructorError`` if a key occurs twice."""
        places: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in places:
                    first = f"'{key.value}' is defined twice, first"
                    raise yaml.constructor.ConstructorError(first, places[key.value], "and again", key.start_mark)
                places[key.value] = key.start_mark
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def parse_yaml(text: str) -> Any:
    """Parse a YAML document.

    Raises
    ------
    yaml.YAMLError
        If it is not valid, a key occurs twice, it holds a value that cannot be read, or it is too large, too deeply
        nested or has too many values or references.
    """
    return deepcopy(_load_document(text))


@lru_cache(maxsize=8)
def _load_document(text: str) -> Any:
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"it has {len(text)} characters; the limit is {LARGEST}")
    with suppress(yaml.MarkedYAMLError):  # told by the loader
        _refuse_large(text)
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a safe loader)


def _refuse_large(text: str) -> None:
    """Refuse a document (``YAMLError``) that would take much time or memory to load, as soon as that is seen."""
    depth = aliases = 0
    for number, event in enumerate(yaml.parse(text, Loader=EVENTS)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        counts = (
            (depth, DEEPEST, "levels of nesting"),
            (aliases, MOST_ALIASES, "aliases"),
            (number, MOST_EVENTS, "values"),
        )
        for count, most, what in counts:
            if count > most:
                raise yaml.YAMLError(f"it has more than {most} {what}; simplify it\n{event.start_mark}")
