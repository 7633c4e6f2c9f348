"""The asset ``claims``: which claims of the paper a landed study supports, as checks that stop nothing."""

from contextlib import closing
from typing import Any

from dagster_project.steps.assets import Asset, Check, Checked, Made, MadeOf, Work
from dagster_project.steps.landing import WAREHOUSE
from dagster_project.study.home import Home
from reports.queries import ask
from storage.errors import UserError
from storage.warehouse.connection import connect
from storage.warehouse.relations import paper_claims


def make_claims(work: Work) -> Made:
    """Hold what the paper claims against a study; a claim that the study does not support is a warning."""
    found = judge_claims(work.home, work.name)
    return Made(
        {
            "supported": sum(claim["supported"] is True for claim in found),
            "not supported": sum(claim["supported"] is False for claim in found),
            "cannot be judged": sum(claim["supported"] is None for claim in found),
        },
        tuple(
            Checked(
                claim["claim"],
                claim["supported"] is not False,
                {name: claim[name] for name in ("value", "direction", "threshold") if claim[name] is not None},
                "cannot be judged: there is no such number" if claim["supported"] is None else None,
            )
            for claim in found
        ),
    )


def judge_claims(home: Home, name: str) -> list[dict[str, Any]]:
    """The rows of the view ``claims`` for a landed study: what the paper claims, and whether the study supports it.

    Raises
    ------
    UserError
        If the study is not landed.
    """
    with closing(connect(home.warehouse)) as connection:
        found = ask(connection, "claims", study=name).rows()
    if not found:
        msg = f"The warehouse holds nothing of the study '{name}'; run it first: attention-geometry run {name}"
        raise UserError(msg)
    return found


def _checks() -> tuple[Check, ...]:

    return tuple(
        Check(
            claim["claim"],
            f"{claim['figure']}: {claim['statement']}. {claim['measure']} {claim['direction']} {claim['threshold']:g}.",
            blocking=False,
        )
        for claim in paper_claims()
    )


CLAIMS = Asset(
    name="claims",
    about="What the paper claims, held against this study; a claim that the study does not support is a warning.",
    parents=(WAREHOUSE,),
    kinds=("duckdb", "sql"),
    version=lambda: "2",
    make=make_claims,
    expected=lambda _: None,
    recorded=lambda _: MadeOf(None),  # it leaves nothing behind; stale whenever its parent is
    places=lambda _, __: (),
    checks=_checks,
)
