"""YAML that people write: duplicate keys are errors, and what would take much time or memory is refused.

Holds ``parse_yaml``.
"""

from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

DEEPEST = 32
"""Levels of nesting; ``studies.yaml`` has five."""

MOST_ALIASES = 1000
"""References to anchors: each of them may stand for a document as large as the rest."""

LARGEST = 10_000_000
"""Characters of a document."""


class _Strict(yaml.SafeLoader):
    """Plain values only, and each key of a mapping once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping of a node.

        Raises
        ------
        yaml.constructor.ConstructorError
            If a key is there twice.
        """
        places: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in places:
                    first = f"'{key.value}' is there first"
                    raise yaml.constructor.ConstructorError(first, places[key.value], "and again", key.start_mark)
                places[key.value] = key.start_mark
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def parse_yaml(text: str) -> Any:
    """The value of a YAML document.

    Raises
    ------
    yaml.YAMLError
        If it is not valid, a key is there twice, or it is nested or repeated beyond what a person writes.
    """
    return deepcopy(_parsed(text))


@lru_cache(maxsize=8)
def _parsed(text: str) -> Any:
    if len(text) > LARGEST:
        msg = f"it has {len(text)} characters, at most {LARGEST} are read"
        raise yaml.YAMLError(msg)
    depth = aliases = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > DEEPEST or aliases > MOST_ALIASES:
            what = f"more than {DEEPEST} levels" if depth > DEEPEST else f"more than {MOST_ALIASES} references"
            msg = f"it has {what}; write it out\n{event.start_mark}"
            raise yaml.YAMLError(msg)
    return yaml.load(text, Loader=_Strict)  # noqa: S506 (a safe loader)
