"""Freshness: which assets of a study are missing or stale, and why.

Stores, tables, database and page say themselves what they were made of, which is true of copied data roots and of lost
records too; Dagster's records are not asked.
"""

from collections.abc import Mapping

from dagster_project.steps.assets import Snapshot
from dagster_project.steps.catalogue import ASSETS
from dagster_project.study.home import Home
from dagster_project.study.studies import Study, find_study
from dagster_project.study.twins import twin_of

SHOWING = ("claims", "report")
"""The assets that show what has landed of a study, beside its twin; nothing is made of them."""

FOLLOWS = "follows from"
"""How the reason of an asset begins that is stale because a parent is."""


def stale(home: Home, name: str, study: Study, force: str | None = None) -> dict[str, str]:
    """Why each asset of a study that is missing or stale is so, in words, in the order of ``ASSETS``; {} if none is.

    What follows from something stale is stale. No model is loaded and no network used, but for object stores: local
    models and corpora are hashed; of those on the hub the commit that was read counts, so that a branch that has moved
    on is not noticed.

    Parameters
    ----------
    force
        An asset that counts as stale whatever it is made of.

    Raises
    ------
    UserError
        If a local model or corpus is missing or cannot be read, or an object store does not answer.
    """
    snapshot = Snapshot(home, name, study)
    found = {asset.name: asset.why_stale(snapshot) for asset in ASSETS}
    own = _of_twin(snapshot) | {asset: why for asset, why in found.items() if why}
    own |= {force: "asked for"} if force else {}
    reasons = _with_followers(own)
    needing = [asset.name for asset in ASSETS if asset.reads and asset.name in reasons]
    if needing and "tensors" not in reasons and snapshot.tensors is not None and snapshot.tensors.dropped:
        return _with_followers(own | {"tensors": f"dropped, and {needing[0]} is made from them"})
    return reasons


def needed_of_twin(home: Home, twin: str) -> tuple[str, ...]:
    """The assets of a study that others are held against: what its tables are made of, and its page if it has one."""
    page = home.report(twin).exists()
    return tuple(asset.name for asset in ASSETS if page or asset.name not in SHOWING)


def stale_of_twin(home: Home, twin: str, force: str | None = None) -> dict[str, str]:
    """The same of what is needed of a twin.

    Raises
    ------
    UserError
        As ``stale``.
    """
    reasons, needed = stale(home, twin, find_study(home, twin), force), needed_of_twin(home, twin)
    return {asset: why for asset, why in reasons.items() if asset in needed}


def _of_twin(snapshot: Snapshot) -> dict[str, str]:
    """Why what stands beside a twin is stale, if the twin has landed and its tables are."""
    twin = twin_of(snapshot.name, snapshot.study)
    if twin is None or snapshot.landed_twin is None:
        return {}
    if not stale(snapshot.home, twin, find_study(snapshot.home, twin)).keys() - {*SHOWING}:
        return {}
    return dict.fromkeys(SHOWING, f"its twin '{twin}' is stale")


def _with_followers(own: Mapping[str, str]) -> dict[str, str]:
    """The reasons of all stale assets, given those that have one of their own."""
    reasons: dict[str, str] = {}
    for asset in ASSETS:
        follows = [f"{FOLLOWS} {parent.name}" for parent in asset.parents if parent.name in reasons]
        if asset.name in own or follows:
            reasons[asset.name] = own.get(asset.name) or follows[0]
    return reasons
