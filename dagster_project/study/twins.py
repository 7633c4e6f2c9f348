"""Twins: the studies of random weights in the same architecture that studies are held against.

A study names its twin, or asks for one with ``twin: random``, which is then a study of its own under the name
``NAME-random``. Holds what such a study is, and what it is called.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_project.study.studies import Study

RANDOM = "random"
"""What a study asks for to have a twin made for it."""

SEQUENCES = 8
"""Most sequences of a twin that is made for a study; it looks at the last query alone, so that it costs little."""

SUFFIX = "-random"


def twin_of(name: str, study: "Study") -> str | None:
    """The name of a study's twin; None if it has none."""
    return f"{name}{SUFFIX}" if study.twin == RANDOM else study.twin


def random_twin(study: "Study") -> "Study":
    """The twin that is made for a study: the same but for its weights, on few sequences and one query."""
    given = study.model_dump(exclude={"twin", "queries"})
    last = study.query_positions[-1]
    effects = given["analysis"]["effects"]
    if effects is not None:
        effects = effects | {"sequences": min(effects["sequences"], SEQUENCES)}
    changed = {
        "model": given["model"] | {"weights": "random"},
        "sequences": min(study.sequences, SEQUENCES),
        "queries": None if last == study.context_length - 1 else (last,),
        "analysis": given["analysis"] | {"monte_carlo": None, "effects": effects},
    }
    return type(study).model_validate(given | changed)


def names_with_twins(entries: Mapping[str, Any]) -> Iterator[str]:
    """The names of the studies of a file, each followed by that of the twin that is made for it, if it asks for one."""
    for name, settings in entries.items():
        yield name
        if isinstance(settings, dict) and settings.get("twin") == RANDOM:
            yield f"{name}{SUFFIX}"


def owner_of(name: object, entries: Mapping[str, Any]) -> str | None:
    """The study of a file that a twin of this name is made for; None if there is none."""
    owner = str(name).removesuffix(SUFFIX)
    settings = entries.get(owner)
    asks = isinstance(settings, dict) and settings.get("twin") == RANDOM
    return owner if asks and owner != name else None
