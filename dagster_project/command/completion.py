"""Shell completion of studies, formats, assets and tables; a data root that cannot be read completes nothing."""

from collections.abc import Callable, Iterable

import typer

import sql
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.user_paths import resolve_path


def complete_study(context: typer.Context, incomplete: str) -> list[str]:
    """The studies and families of the named data root that begin with a prefix."""
    from dagster_project.study.studies import list_families, list_readable_studies

    named = context.params.get("home")
    try:
        home = Home(resolve_path(named)) if named else Home.from_environment()
        names = {*list_readable_studies(home)[0], *list_families(home)}
    except (UserError, OSError):
        return []
    return _filter_by_prefix(incomplete, names)


def complete_relation(incomplete: str) -> list[str]:
    """The tables, views and macros that begin with a prefix."""
    return _filter_by_prefix(
        incomplete, [name for kind in ("schema", "families", "views", "macros") for name in sql.list_names(kind)]
    )


def complete_asset(incomplete: str) -> list[str]:
    """The assets of a study that begin with a prefix."""
    from dagster_project.assets.catalogue import ASSETS

    return _filter_by_prefix(incomplete, [asset.name for asset in ASSETS])


def complete_one_of(*known: str) -> Callable[[str], list[str]]:
    """Make a function that completes one of some words."""

    def complete(incomplete: str) -> list[str]:
        return _filter_by_prefix(incomplete, known)

    return complete


def _filter_by_prefix(incomplete: str, known: Iterable[str]) -> list[str]:
    return sorted(name for name in known if name.startswith(incomplete))
