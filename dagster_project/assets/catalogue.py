"""All assets of a study, and what they are made for."""

from dagster_project.assets.asset import Asset, Work
from dagster_project.assets.claims import CLAIMS
from dagster_project.assets.landing import make_warehouse_asset
from dagster_project.assets.metrics import SELECTION_METRICS
from dagster_project.assets.report import REPORT
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.assets.tensors import TENSOR_STORE
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.study.studies import find_study

ASSETS: tuple[Asset, ...] = (
    TENSOR_STORE,
    SELECTION_METRICS,
    *SUMMARIES,
    make_warehouse_asset(SUMMARIES),
    CLAIMS,
    REPORT,
)
"""The assets, each after its parents."""


def select_assets(study: Study) -> tuple[Asset, ...]:
    """The assets that a study asks for, each after its parents."""
    return tuple(asset for asset in ASSETS if asset.is_wanted(study))


def find_asset(name: str) -> Asset:
    """The asset of this name.

    Raises
    ------
    KeyError
        If there is none.
    """
    return {asset.name: asset for asset in ASSETS}[name]


def prepare_work(home: Home, study: str, *, replace: bool = False) -> Work:
    """The study that an asset is made for, with its settings and all assets.

    Raises
    ------
    UserError
        If there is no such study.
    """
    return Work(home, study, find_study(home, study), ASSETS, replace=replace)
