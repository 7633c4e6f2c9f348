"""Twins: the studies of random weights in the same architecture that studies are held against.

A study names its twin, or asks for one with ``twin: random``, which is then a study of its own under the name
``NAME-random``. Holds what such a study is, and which study is the twin of another.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from storage.errors import UserError

if TYPE_CHECKING:
    from dagster_project.study.home import Home
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
    changed = {
        "model": given["model"] | {"weights": "random"},
        "sequences": min(study.sequences, SEQUENCES),
        "queries": None if last == study.context_length - 1 else (last,),
        "analysis": given["analysis"] | {"monte_carlo": None},
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


def check_twin(home: "Home", name: str, study: "Study") -> None:
    """Refuse a twin that is not one.

    Raises
    ------
    UserError
        If there is no such study, its weights are not random, or its model is another.
    """
    from dagster_project.study.studies import find_study

    twin = twin_of(name, study)
    if twin is None:
        return
    found = find_study(home, twin)
    if found.model.weights != RANDOM:
        msg = (
            f"The study '{twin}' cannot be the twin of '{name}', for its weights are trained; write twin: {RANDOM}, or "
            f"give '{twin}' random weights"
        )
        raise UserError(msg)
    if (found.model.id, found.model.revision) != (study.model.id, study.model.revision):
        msg = f"The study '{twin}' cannot be the twin of '{name}': its model is {found.model.id}, not {study.model.id}"
        raise UserError(msg)
