"""Controls of a study: its twin, with random weights in the same architecture, and its probe of repeated tokens.

A study names its twin, or requests one with ``twin: random``, which is then a separate study named ``NAME-random``.
This module defines the settings and the name of such a study, and which controls a new study has.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_project.study.settings import RANDOM, Study
from extract.settings import REPEATED
from reports.findings.numbers import count
from storage.errors import UserError

SEQUENCES = 8
"""Most sequences of a generated twin; it measures the last query alone, at one temperature, and has no probe, in which
random weights copy nothing, so that it costs little."""

EVERY_QUERY_KEYS = 1024
"""Longest context of which a new study measures every query unless asked not to: the work grows as its cube."""

SUFFIX = "-random"


def find_twin_name(name: str, study: Study) -> str | None:
    """The name of a study's twin; None if it has none."""
    return f"{name}{SUFFIX}" if study.twin == RANDOM else study.twin


def make_random_twin(study: Study) -> Study:
    """The generated twin of a study: the same but for its weights, on few sequences and one query, without a probe."""
    given = study.model_dump(exclude={"twin", "queries", "probe", "every_query"})
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


def choose_controls(
    twin: str | None, *, no_twin: bool, no_probe: bool, every_query: bool | None, default: bool, keys: int | None
) -> dict[str, str | bool | None]:
    """The settings of twin, probe and every query, as they were given; if they were not, by ``default`` or none.

    keys: tokens of a sequence; of more than ``EVERY_QUERY_KEYS`` every query is measured only where it is asked for.

    Raises
    ------
    UserError
        If a twin is named and left out.
    """
    if twin is not None and no_twin:
        raise UserError(f"--twin {twin} and --no-twin exclude each other; leave one of them out")
    affordable = keys is not None and keys <= EVERY_QUERY_KEYS
    chosen: dict[str, str | bool | None] = (
        {"twin": RANDOM, "probe": REPEATED, "every_query": affordable} if default else {}
    )
    chosen |= {} if twin is None else {"twin": twin}
    chosen |= {} if every_query is None else {"every_query": every_query}
    left_out = {"twin": no_twin, "probe": no_probe}
    return chosen | {control: None for control, absent in left_out.items() if absent}


def describe_controls(name: str, study: Study) -> str | None:
    """What twin and probe of a study cost, in forward passes of one sequence; None if it has neither."""
    own, parts = study.sequences, []
    probed = own if study.probe else 0
    beside = min(own, SEQUENCES) if study.twin == RANDOM else 0
    if probed:
        parts.append(f"{probed:,} of repeated tokens (the probe)")
    if beside:
        parts.append(f"{beside:,} with random weights (the twin, {name}{SUFFIX})")
    if not parts:
        return None
    ratio = (own + probed + beside) / own
    return f"{count(own, 'sequence')}, and {' and '.join(parts)}: {ratio:.3g} times as many forward passes"
