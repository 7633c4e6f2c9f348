"""Freshness: which assets of a study are missing or stale, and why.

Holds ``stale``.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dagster_project.steps.summaries import STEPS, Step
from dagster_project.study.home import Home
from dagster_project.study.studies import Study
from extract.settings import changes
from storage.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.files.places import Place
    from storage.zarr.arrays import ArraySpec
    from storage.zarr.sequences import SequenceStore

PARENTS: dict[str, tuple[str, ...]] = {
    "tensors": (),
    "selection_metrics": ("tensors",),
    **{name: ("selection_metrics", *step.after) for name, step in STEPS.items()},
    "warehouse": ("selection_metrics", *STEPS),
    "claims": ("warehouse",),
    "report": ("warehouse",),
}
"""The assets of a study, each after those that it is made from."""

READ_TENSORS = (
    "selection_metrics",
    "assumption_weights",
    "attention_by_position",
    "contributions",
    "value_directions",
)
"""The assets that are made from weights or value states, which may have been dropped."""

MISSING, UNREADABLE, OTHERS, FOLLOWS = "missing", "cannot be read", "made from other", "follows from"
"""Why an asset is stale, or how such a reason begins."""


def stale(home: Home, name: str, study: Study) -> dict[str, str]:
    """Why each asset of a study that is missing or stale is so, in words, in the order of ``PARENTS``; {} if none is.

    What follows from something stale is stale. No model is loaded and no network used, but for object stores: local
    models and corpora are hashed; of those on the hub the commit that was read counts, so that a branch that has moved
    on is not noticed. The asset ``claims`` leaves nothing behind and is stale whenever the warehouse is.

    Raises
    ------
    UserError
        If a local model or corpus is missing or cannot be read, or an object store does not answer.
    """
    own = {asset: why for asset, why in _own_reasons(home, name, study) if why}
    reasons = _with_followers(own)
    needing = [asset for asset in READ_TENSORS if asset in reasons]
    if needing and "tensors" not in reasons and _dropped(home, name):
        return _with_followers(own | {"tensors": f"dropped, and {needing[0]} is made from them"})
    return reasons


def _with_followers(own: Mapping[str, str]) -> dict[str, str]:
    """The reasons of all stale assets, given those that have one of their own."""
    reasons: dict[str, str] = {}
    for asset, parents in PARENTS.items():
        follows = [f"{FOLLOWS} {parent}" for parent in parents if parent in reasons]
        if asset in own or follows:
            reasons[asset] = own.get(asset) or follows[0]
    return reasons


def _own_reasons(home: Home, name: str, study: Study) -> Iterator[tuple[str, str | None]]:
    """Why each asset would have to be made anew if all before it were fresh; None where that cannot be told."""
    from storage.zarr.arrays import SELECTION, TENSORS

    yield "tensors", _why_tensors(home, name, study)
    tensors, metrics = _opened(home.tensors(name), TENSORS), _opened(home.metrics(name), SELECTION)
    yield "selection_metrics", _why_metrics(home.metrics(name), name, study, tensors, metrics)
    for step in STEPS.values():
        yield step.name, _why_step(home, name, study, step, metrics)
    landed = _landed(home, name)
    yield "warehouse", _why_warehouse(home, name, study, tensors, metrics, landed)
    yield "report", _why_report(home.report(name), study, landed)


def _why_tensors(home: Home, name: str, study: Study) -> str | None:
    path = home.tensors(name)
    if not path.exists():
        return MISSING
    from extract.extraction import why_stale

    return why_stale(study.extraction(), study=name, path=path)


def _why_metrics(
    path: "Place", name: str, study: Study, tensors: "SequenceStore | None", metrics: "SequenceStore | None"
) -> str | None:
    if not path.exists():
        return MISSING
    if metrics is None:
        return UNREADABLE
    missing = len(metrics.missing())
    lacking = f"{missing} of {metrics.sizes['sequence']} sequences missing" if missing else None
    return _metrics_changes(name, study, tensors, metrics) or lacking


def _metrics_changes(name: str, study: Study, tensors: "SequenceStore | None", metrics: "SequenceStore") -> str | None:
    """In what the provenance of the metrics differs from what it would be now."""
    from dagster_project.steps.measuring import metrics_provenance

    if tensors is None:
        return None
    was, now = metrics.provenance, metrics_provenance(name, tensors, study.analysis)
    if was.get("metrics_version") != now["metrics_version"]:
        return _code(was.get("metrics_version"), now["metrics_version"])
    if changed := "; ".join(changes(now["analysis"], was["analysis"], "analysis.")):
        return changed
    return f"{OTHERS} tensors" if any(was[part] != now[part] for part in now) else None


def _why_step(home: Home, name: str, study: Study, step: Step, metrics: "SequenceStore | None") -> str | None:
    from dagster_project.steps.pipeline import summary_paths
    from storage.files.tables import made_from

    paths = summary_paths(home, name, step).values()
    if not all(path.exists() for path in paths):
        return MISSING
    made = [made_from(path) for path in paths]
    if None in made:
        return UNREADABLE
    if metrics is None:
        return None
    now = step.provenance(study.analysis, metrics.provenance)
    was = next((was for was in made if was is not None and was != now), now)
    return _step_changes(step, now, was)


def _step_changes(step: Step, now: Mapping[str, Any], was: Mapping[str, Any]) -> str | None:
    """In what the provenance of a step's table differs from what it would be now."""
    versions_now, versions_was = now["versions"], was.get("versions", {})
    if versions_now[step.name] != versions_was.get(step.name):
        return _code(versions_was.get(step.name), versions_now[step.name])
    if changed := "; ".join(changes(now["settings"], was.get("settings", {}), "analysis.")):
        return changed
    if unlike := [other for other in step.after if versions_now[other] != versions_was.get(other)]:
        return f"{OTHERS} {' and '.join(unlike)}"
    return f"{OTHERS} metrics" if was != now else None


def _why_warehouse(
    home: Home,
    name: str,
    study: Study,
    tensors: "SequenceStore | None",
    metrics: "SequenceStore | None",
    landed: dict[str, Any] | None,
) -> str | None:
    from dagster_project.steps.landing import known_of_steps
    from dagster_project.steps.summaries.sources import Sources
    from storage.warehouse.connection import database
    from storage.warehouse.rows import provenance_of

    if not database(home.warehouse, name).exists():
        return MISSING
    if landed is None:
        return UNREADABLE
    if tensors is None or metrics is None:
        return None
    known = known_of_steps(home, Sources(name, tensors, metrics, home.summaries(name), study))
    now = json.loads(json.dumps(provenance_of(tensors, metrics, known)))
    if landed.get("landing") != now["landing"]:
        return _code(landed.get("landing"), now["landing"])
    return f"{OTHERS} stores or tables" if landed != now else None


def _why_report(path: "Path", study: Study, landed: dict[str, Any] | None) -> str | None:
    from dagster_project.steps.reporting import origin_of_report, report_origin

    if not path.exists():
        return MISSING
    if landed is None:
        return None
    try:
        was = origin_of_report(path)
    except OSError:
        return UNREADABLE
    now = report_origin(study, landed)
    if was.get("version") != now["version"]:
        return _code(was.get("version"), now["version"])
    if was.get("map_n") != now["map_n"]:
        return next(changes({"map_n": now["map_n"]}, {"map_n": was.get("map_n")}, "analysis."))
    return f"{OTHERS} tables" if was != now else None


def _opened(path: "Place", specs: "Sequence[ArraySpec]") -> "SequenceStore | None":
    """A store, if one is there that can be read."""
    from storage.zarr.sequences import SequenceStore

    try:
        store = SequenceStore.open(path, specs)
        store.missing()
    except UserError:
        return None
    return store


def _dropped(home: Home, name: str) -> bool:
    """Whether a study's weights or value states have been deleted, but nothing else of its tensors."""
    from storage.zarr.arrays import TENSORS

    store = _opened(home.tensors(name), TENSORS)
    return store is not None and bool(store.dropped)


def _landed(home: Home, name: str) -> dict[str, Any] | None:
    """The provenance that the published database of a study carries; None if there is none that can be read.

    This database alone is opened: another that is damaged does not matter.
    """
    import duckdb

    from storage.warehouse.connection import database
    from storage.warehouse.relations import literal

    with closing(duckdb.connect()) as connection:
        try:
            connection.execute(f"ATTACH {literal(str(database(home.warehouse, name)))} AS landed (READ_ONLY)")
            found = connection.execute("SELECT provenance FROM landed.studies").fetchall()
        except duckdb.Error:
            return None
    landed = json.loads(found[0][0]) if found else None
    return landed if isinstance(landed, dict) else None


def _code(was: object, now: object) -> str:
    """Why something is stale that another version of its code made."""
    earlier = "an earlier version" if was is None else f"version {was}"
    return f"made by {earlier} of its code, now {now}"
