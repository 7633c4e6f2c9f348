"""Freshness: which assets of a study are missing or stale, and why.

Stores, tables, database and page record themselves what they were made from, so that this works for copied data roots
and without Dagster's records, which are not used.
"""

from collections.abc import Iterable, Mapping

from dagster_project.assets.asset import Asset, Snapshot
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.study.home import Home
from dagster_project.study.settings import Study, find_twin_name
from dagster_project.study.studies import find_study

SHOWING = ("claims", "report")
"""The assets that show the landed results of a study and compare them with its twin; no asset is made from them."""

FOLLOWS = "follows from"
"""The beginning of the reason of an asset that is stale because a parent is."""


def find_stale_assets(home: Home, name: str, study: Study, force: str | None = None) -> dict[str, str]:
    """Find the missing or stale assets of a study, each with the reason, in the order of ``ASSETS``.

    An asset that depends on a stale one is stale. No model is loaded, and the network is used for object stores only:
    local models and corpora are hashed; for those on the hub, the recorded commit is used, so that later commits to a
    branch are not noticed. ``force`` counts as stale in any case.

    ``UserError`` if a local model or corpus is missing or cannot be read, or an object store does not answer.
    """
    snapshot = Snapshot(home, name, study, ASSETS)
    wanted = select_assets(study)
    own = _explain_stale_twin(snapshot)
    own |= {asset.name: why for asset in wanted if (why := asset.explain_staleness(snapshot))}
    own |= {force: "requested"} if force else {}
    reasons = _add_followers(own, wanted)
    needing = [asset.name for asset in wanted if asset.reads and asset.name in reasons]
    if needing and "tensors" not in reasons and snapshot.tensors is not None and snapshot.tensors.dropped:
        return _add_followers(own | {"tensors": f"dropped, but {needing[0]} is made from them"}, wanted)
    return reasons


def select_twin_assets(home: Home, twin: str) -> tuple[str, ...]:
    """The assets needed of a twin: its tables and what they are made from, and its page if it exists."""
    page, wanted = home.report(twin).exists(), select_assets(find_study(home, twin))
    return tuple(asset.name for asset in wanted if page or asset.name not in SHOWING)


def find_stale_of_twin(home: Home, twin: str, force: str | None = None) -> dict[str, str]:
    """As ``find_stale_assets``, also its errors, for the needed assets of a twin."""
    reasons, needed = find_stale_assets(home, twin, find_study(home, twin), force), select_twin_assets(home, twin)
    return {asset: why for asset, why in reasons.items() if asset in needed}


def _explain_stale_twin(snapshot: Snapshot) -> dict[str, str]:
    """The reason of the tables of a study that are compared with its twin, if that has landed and is stale."""
    twin = find_twin_name(snapshot.name, snapshot.study)
    if twin is None or snapshot.landed_twin is None:
        return {}
    if not find_stale_assets(snapshot.home, twin, find_study(snapshot.home, twin)).keys() - {*SHOWING}:
        return {}
    return {"warehouse": f"its twin '{twin}' is stale"}


def _add_followers(own: Mapping[str, str], wanted: Iterable[Asset]) -> dict[str, str]:
    """Add to the reasons of stale assets those of all wanted assets that depend on them."""
    reasons: dict[str, str] = {}
    for asset in wanted:
        follows = [f"{FOLLOWS} {parent}" for parent in asset.parents if parent in reasons]
        if asset.name in own or follows:
            reasons[asset.name] = own.get(asset.name) or follows[0]
    return reasons
