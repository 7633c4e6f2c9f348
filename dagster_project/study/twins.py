"""Twins: studies with random weights in the same architecture that other studies are compared with.

A study names its twin, or requests one with ``twin: random``, which is then a separate study named ``NAME-random``.
This module defines the settings and the name of such a study.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_project.study.settings import RANDOM, Study

SEQUENCES = 8
"""Most sequences of a generated twin; it measures the last query alone, at one temperature, and has no probe, in which
random weights copy nothing, so that it costs little."""

SUFFIX = "-random"


def find_twin_name(name: str, study: Study) -> str | None:
    """The name of a study's twin; None if it has none."""
    return f"{name}{SUFFIX}" if study.twin == RANDOM else study.twin


def make_random_twin(study: Study) -> Study:
    """The generated twin of a study: the same but for its weights, on few sequences and one query, without a probe."""
    given = study.model_dump(exclude={"twin", "queries", "probe"})
    last = study.query_positions[-1]
    effects = given["analysis"]["effects"]
    if effects is not None:
        effects = effects | {"sequences": min(effects["sequences"], SEQUENCES)}
    changed = {
        "model": given["model"] | {"weights": "random", "quantised": None},
        "sequences": min(study.sequences, SEQUENCES),
        "queries": None if last == study.context_length - 1 else (last,),
        "analysis": given["analysis"] | {"monte_carlo": None, "temperatures": (1.0,), "effects": effects},
    }
    return type(study).model_validate(given | changed)


def iterate_with_twins(entries: Mapping[str, Any]) -> Iterator[str]:
    """The names of the studies of a file, each followed by that of its generated twin, if it requests one."""
    for name, settings in entries.items():
        yield name
        if isinstance(settings, dict) and settings.get("twin") == RANDOM:
            yield f"{name}{SUFFIX}"


def find_owner(name: object, entries: Mapping[str, Any]) -> str | None:
    """The study of a file whose generated twin has this name; None if there is none."""
    owner = str(name).removesuffix(SUFFIX)
    settings = entries.get(owner)
    asks = isinstance(settings, dict) and settings.get("twin") == RANDOM
    return owner if asks and owner != name else None
