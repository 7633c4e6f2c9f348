"""The asset ``claims``: the claims of the paper, as checks of a landed study that do not block other assets."""

from collections import Counter
from contextlib import closing
from typing import Any

from dagster_project.assets.asset import Asset, AssetResult, Check, CheckResult, Provenance, Work
from dagster_project.study.home import Home
from reports.findings.claims import format_threshold
from storage.errors import UserError
from storage.warehouse.connection import connect

VERDICTS = ("supported", "not supported", "undecided", "not testable")
"""The possible verdicts on a claim."""

SHOWN = ("p_holm", "sequences_needed", "rows", "sequences", "twin_verdict", "beyond_twin")
"""Columns of a claim that its check shows, if they are known."""


def make_claims(work: Work) -> AssetResult:
    """Judge the claims of the paper by a study: only a claim that the study supports passes its check."""
    claims = judge_claims(work.home, work.name)
    counts = Counter(claim["verdict"] for claim in claims)
    return AssetResult(
        {verdict: counts[verdict] for verdict in VERDICTS}, tuple(_check_claim(claim) for claim in claims)
    )


def _check_claim(claim: dict[str, Any]) -> CheckResult:
    """The result of the check of a claim; an undecided claim has not passed, and the description says so."""
    shown = {name: claim[name] for name in SHOWN if claim[name] is not None}
    return CheckResult(claim["claim"], claim["verdict"] == "supported", shown, claim["sentence"])


def judge_claims(home: Home, name: str) -> list[dict[str, Any]]:
    """The rows of the table ``claims`` of a study: what the paper claims and what is found; ``UserError`` if it has not
    landed.
    """
    with closing(connect(home.warehouse, studies=[name], described=False)) as connection:
        statement = "SELECT * EXCLUDE (study) FROM claims WHERE study = ? ORDER BY source, claim"
        claims: list[dict[str, Any]] = connection.sql(statement, params=[name]).to_arrow_table().to_pylist()
    if not claims:
        raise UserError(
            f"The warehouse holds nothing of the study '{name}'; run it first: attention-geometry run {name}"
        )
    return claims


def _list_checks() -> tuple[Check, ...]:
    from dagster_project.analysis.claims.judging import CLAIMS as DECLARED
    from dagster_project.analysis.claims.judging import find_measure

    return tuple(
        Check(claim.name, f"{claim.source}: {claim.statement}. {'; '.join(required)}", blocking=False)
        for claim in DECLARED
        for required in (
            [f"{find_measure(part.measure).meaning}: {format_threshold(vars(part))}" for part in claim.parts],
        )
    )


CLAIMS = Asset(
    name="claims",
    about="The claims of the paper, tested on this study: a check passes if the study supports the claim; if not, it "
    "says whether the claim is not supported, undecided or not testable.",
    parents=("warehouse",),
    kinds=("duckdb", "sql"),
    version=lambda: "4",
    make=make_claims,
    expected=lambda _: Provenance(None),
    recorded=lambda _: Provenance(None),  # it stores nothing: it is stale if its parent is
    places=lambda _, __: (),
    checks=_list_checks,
)
