"""Differences between two nested documents, such as provenances and settings."""

from collections.abc import Iterator, Mapping
from typing import Any


def find_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The fields in which two JSON documents differ, in order: dotted name, old value, new value; None if absent."""
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from find_differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}", before, after
