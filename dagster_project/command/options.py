"""Options that commands share, and those of ``run``, as annotated types: names, help texts, completion.

A data root that cannot be read completes nothing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import sql
from dagster_project.study.home import DEFAULT_HOME, HOME_VARIABLE, Home
from storage.errors import UserError
from storage.files.user_paths import resolve_path

Bos = Literal["auto", "always", "never"]
"""As ``extract.settings.Bos``, whose module loads Pydantic."""

Page = Literal["table", "markdown"]
"""Formats of lists: for the terminal, or as a page."""

Rows = Literal["table", "vertical", "markdown", "csv", "spreadsheet", "json", "parquet"]
"""Formats of results of SQL."""

Export = Literal["duo", "lukv", "retrieval", "headvis", "csv", "parquet", "json"]
"""Formats of measures of heads: ``reports.scores.files``."""

Ranking = Literal[
    "recall", "precision", "specificity", "sink", "rho_0", "effective_keys", "n_90", "top_weight",
    "previous", "self", "local", "duplicate", "induction",
]  # fmt: skip
"""What ``inspect`` ranks heads by: measures at the query, and patterns over all queries."""


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
    kinds: tuple[sql.StatementKind, ...] = ("schema", "families", "views", "macros")
    return _filter_by_prefix(incomplete, [name for kind in kinds for name in sql.list_names(kind)])


def complete_asset(incomplete: str) -> list[str]:
    """The assets of a study that begin with a prefix."""
    from dagster_project.assets.catalogue import ASSETS

    return _filter_by_prefix(incomplete, [asset.name for asset in ASSETS])


def _filter_by_prefix(incomplete: str, known: Iterable[str]) -> list[str]:
    return sorted(name for name in known if name.startswith(incomplete))


def make_flag(*names: str, **settings: Any) -> Any:
    """Make an option that takes no value; help shows no placeholder for one."""
    return typer.Option(*names, metavar="", **settings)


def make_study_argument(help: str) -> Any:  # noqa: A002 (called as in typer)
    """Make an argument that names studies, with shell completion."""
    return typer.Argument(help=help, autocompletion=complete_study)


HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help=f"Data root (default: ${HOME_VARIABLE}, else ./{DEFAULT_HOME})."),
]
JsonOption = Annotated[bool, make_flag("--json", help="Print results as JSON.")]
OverwriteOption = Annotated[bool, make_flag("--overwrite", help="Replace files that exist already.")]
GgufOption = Annotated[str | None, typer.Option(metavar="FILE", help="GGUF file of the directory or hub id.")]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of the hub id.")]
BosOption = Annotated[
    Bos | None,
    typer.Option(
        help="What every sequence begins with: what the model's tokenizer puts before a text (auto), BOS, or nothing."
    ),
]
