"""Families: studies that differ in one setting, generated from the entry of a template with a field ``family``.

    pythia:
      family: {revision: [step0, step512, step1000]}
      model: EleutherAI/pythia-160m
      …

is three studies, ``pythia-step0`` to ``pythia-step1000``, in the order of the list.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from dagster_project.study.home import is_valid_name

FIELD = "family"
"""The field that makes an entry of a studies file a family."""

OF_MODEL = ("revision", "gguf", "quantised")
"""Axes that are fields of the model's settings."""

AXES = ("model", *OF_MODEL, "context_length", "dtype")
"""Settings in which the members of a family may differ, if their values are listed."""

MEMBERS = 1000
"""Most members of a family."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,30}")
_REFUSED = re.compile(r"[^a-z0-9._]+")


@dataclass(frozen=True)
class Family:
    """An ordered list of studies that differ in one setting."""

    name: str
    axis: str
    """What they differ in."""
    members: Mapping[str, str]
    """The value on the axis of each study, by the name of the study, in order."""


@dataclass(frozen=True)
class Fault:
    """Stands for the settings of a study that cannot be read."""

    reason: str


@dataclass(frozen=True)
class Entries:
    """The entries of a studies file."""

    studies: Mapping[str, Any]
    """Unchecked settings of each study; members of families are studies; a ``Fault`` for a family with an error."""
    families: Mapping[str, Family]

    def list_names(self) -> Iterator[str]:
        """The names of all studies and of all families."""
        yield from self.studies
        yield from self.families


def expand_families(entries: Mapping[Any, Any]) -> Entries:
    """Replace each family among the entries of a studies file by its members."""
    studies: dict[str, Any] = {}
    families = {}
    for name, settings in entries.items():
        if not (is_valid_name(name) and isinstance(settings, dict) and FIELD in settings):
            studies[name] = settings
            continue
        parsed = _parse_family(name, settings[FIELD])
        if isinstance(parsed, Fault):
            studies[name] = parsed
            continue
        family, changes = parsed
        if taken := [member for member in family.members if member in entries or member in studies]:
            studies[name] = Fault(
                f"family '{name}' has a member '{taken[0]}', but another entry has this name; rename it"
            )
            continue
        families[name] = family
        template = {field: value for field, value in settings.items() if field != FIELD}
        studies |= {member: _merge(template, change) for member, change in zip(family.members, changes, strict=True)}
    return Entries(studies, families)


def _parse_family(name: str, given: object) -> tuple[Family, list[dict[str, Any]]] | Fault:
    """The family of an entry, and the settings of each member that differ from the template."""
    if not isinstance(given, dict) or len(given) != 1 or not _NAME.fullmatch(str(next(iter(given)))):
        return _blame(name, "should be one axis with its values, such as {revision: [step0, step512]}")
    axis, values = next(iter(given.items()))
    if not isinstance(values, list | dict) or not 2 <= len(values) <= MEMBERS:
        return _blame(name, f"{axis} should list 2 to {MEMBERS} values")
    if reason := _find_wrong_value(axis, values):
        return _blame(name, reason)
    labels = [_shorten(value) if isinstance(values, list) else str(value) for value in values]
    if isinstance(values, list):
        changes = [{"model": {axis: value}} if axis in OF_MODEL else {axis: value} for value in values]
    else:
        changes = list(values.values())
    members = {f"{name}-{_REFUSED.sub('-', label.lower()).strip('-._')}": label for label in labels}
    if len(members) < len(labels) or f"{name}-" in members:
        return _blame(name, f"{axis} has values that give members no name, or the same; name them: {{NAME: SETTINGS}}")
    return Family(name, str(axis), members), changes


def _find_wrong_value(axis: str, values: list[Any] | dict[Any, Any]) -> str | None:
    """Why the values of an axis cannot be used; None if they can."""
    if isinstance(values, dict):
        wrong = [value for value, change in values.items() if not isinstance(change, dict)]
        return f"{axis}.{wrong[0]} should be the settings in which this member differs, or {{}}" if wrong else None
    if axis not in AXES:
        return f"has the unknown axis '{axis}'; the axes are {', '.join(AXES)}"
    wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, str | int)]
    return f"{axis} should list names or whole numbers, found {wrong[0]!r}" if wrong else None


def _blame(name: str, what: str) -> Fault:
    return Fault(f"study '{name}', field '{FIELD}' {what}")


def _shorten(value: object) -> str:
    """A value as it is shown: the last part of a path or id, without the suffix of a GGUF file."""
    return PurePosixPath(str(value)).name.removesuffix(".gguf")


def _merge(template: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a template with some changed; nested ones are merged, and a plain id has only that field."""
    merged = dict(template)
    for field, value in change.items():
        before = merged.get(field)
        nested = {"id": before} if isinstance(before, str) and isinstance(value, dict) else before
        merged[field] = _merge(nested, value) if isinstance(nested, dict) and isinstance(value, dict) else value
    return merged
