"""Hand-written YAML: duplicate keys are errors, and documents that would take much time or memory are refused."""

from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

DEEPEST = 32
"""Most levels of nesting; ``studies.yaml`` has five."""

MOST_ALIASES = 1000
"""Most references to anchors: each may expand to a document as large as the rest."""

LARGEST = 10_000_000
"""Most characters of a document."""


class _StrictLoader(yaml.SafeLoader):
    """A loader of plain values that refuses duplicate keys."""

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
        If it is not valid, a key occurs twice, or it is too large, too deeply nested or has too many references.
    """
    return deepcopy(_load_document(text))


@lru_cache(maxsize=8)
def _load_document(text: str) -> Any:
    if len(text) > LARGEST:
        msg = f"it has {len(text)} characters; the limit is {LARGEST}"
        raise yaml.YAMLError(msg)
    depth = aliases = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > DEEPEST or aliases > MOST_ALIASES:
            what = f"more than {DEEPEST} levels of nesting" if depth > DEEPEST else f"more than {MOST_ALIASES} aliases"
            msg = f"it has {what}; simplify it\n{event.start_mark}"
            raise yaml.YAMLError(msg)
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a safe loader)
