"""The asset ``claims``: the claims of the paper, as checks of a landed study that do not block other assets."""

from collections import Counter
from contextlib import closing
from typing import Any

from dagster_project.steps.assets import Asset, Check, Checked, Made, MadeOf, Snapshot, Work
from dagster_project.steps.landing import WAREHOUSE
from dagster_project.steps.reporting import TWIN, compute_twin_digest, read_page_twin
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import connect
from storage.warehouse.relations import read_paper_claims

VERDICTS = ("supported", "not supported", "undecided", "not testable")
"""The possible verdicts on a claim."""

SHOWN = ("value", "low", "high", "direction", "threshold", "rows", "clusters", "sequences", "twin_verdict", "finding")
"""Columns of a claim that its check shows, if they are known."""


def make_claims(work: Work) -> Made:
    """Judge the claims of the paper by a study: only a claim that the study supports passes its check."""
    found = judge_claims(work.home, work.name)
    counts = Counter(claim["verdict"] for claim in found)
    return Made({verdict: counts[verdict] for verdict in VERDICTS}, tuple(_check_claim(claim) for claim in found))


def _check_claim(claim: dict[str, Any]) -> Checked:
    """The result of the check of a claim; an undecided claim has not passed, and the description says so."""
    said = claim["verdict"] if claim["reason"] is None else f"{claim['verdict']}: {claim['reason']}"
    if claim["finding"] is False:
        said = f"{said}, but also by a model of random weights: not a finding"
    shown = {name: claim[name] for name in SHOWN if claim[name] is not None}
    return Checked(claim["claim"], claim["verdict"] == "supported", shown, said)


def judge_claims(home: Home, name: str) -> list[dict[str, Any]]:
    """The rows of the view ``claims`` for a landed study, with verdicts: what the paper claims and what is found.

    Raises
    ------
    UserError
        If the study is not landed.
    """
    with closing(connect(home.warehouse)) as connection:
        asked = "SELECT * EXCLUDE (study) FROM claims WHERE study = ? ORDER BY figure, claim"
        found: list[dict[str, Any]] = connection.sql(asked, params=[name]).to_arrow_table().to_pylist()
    if not found:
        msg = f"The warehouse holds nothing of the study '{name}'; run it first: attention-geometry run {name}"
        raise UserError(msg)
    return found


def _list_checks() -> tuple[Check, ...]:

    return tuple(
        Check(
            claim["claim"],
            f"{claim['figure']}: {claim['statement']}. Supported if {claim['measure']} {claim['direction']} "
            f"{claim['threshold']:g}, over its whole interval.",
            blocking=False,
        )
        for claim in read_paper_claims()
    )


def _build_expected(snapshot: Snapshot) -> MadeOf:
    return MadeOf(None, inputs={TWIN: compute_twin_digest(snapshot)})


def _read_recorded(snapshot: Snapshot) -> MadeOf:
    known = read_page_twin(snapshot) if snapshot.home.report(snapshot.name).exists() else compute_twin_digest(snapshot)
    return MadeOf(None, inputs={TWIN: known})


CLAIMS = Asset(
    name="claims",
    about="The claims of the paper, tested on this study: a check passes if the study supports the claim; if not, it "
    "says whether the claim is not supported, undecided or not testable.",
    parents=(WAREHOUSE,),
    kinds=("duckdb", "sql"),
    version=lambda: "3",
    make=make_claims,
    expected=_build_expected,
    recorded=_read_recorded,  # it stores nothing: it is stale if its parent is, or if the page shows another twin
    places=lambda _, __: (),
    checks=_list_checks,
)
