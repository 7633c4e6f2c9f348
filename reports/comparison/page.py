"""The HTML page that compares several studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from reports import settings as settings_findings
from reports.claims.tables import tabulate_studies
from reports.comparison import figures as across
from reports.families import figures as families
from reports.figures import find_source
from reports.findings import claims as claims_findings
from reports.findings.listings import DASH, Listing
from reports.headlines import findings as headlines_findings
from reports.rendering import render, unvalidated
from storage.files.staging import write_atomically


@unvalidated
def write_comparison(
    connection: duckdb.DuckDBPyConnection,
    studies: Sequence[str],
    path: Path,
    *,
    home: str,
    reports: dict[str, str],
    together: families.FamilySource | None = None,
) -> Path:
    """Write the comparison of several studies atomically; an existing file at ``path`` is replaced.

    ``home`` and ``reports`` are relative links to the index and to existing reports; ``together`` has the tables of a
    family of these studies, which are shown as those of a family without an axis.

    Raises
    ------
    UserError
        If the warehouse holds nothing of one of them, or the file cannot be written.
    """
    sources = [find_source(connection, study, map_n=1) for study in studies]
    claims = {source.study: source.ask_study("claims").rows() for source in sources}
    shared = set.intersection(*({row["claim"] for row in rows} for rows in claims.values()))
    claims = {study: [row for row in rows if row["claim"] in shared] for study, rows in claims.items()}
    answers = {
        source.study: headlines_findings.judge_separation(
            source.overview, source.ask_study("claims").rows(), source.ask_study("measures").rows()
        )
        for source in sources
    }
    html = render(
        "compare.html.j2",
        across.build_sections(sources) + (families.build_sections(together, ordered=False) if together else ()),
        name="+".join(studies),
        studies=[(source.study, reports.get(source.study)) for source in sources],
        home=home,
        answers=headlines_findings.describe_answers(answers),
        told=[
            *(families.tell_first(together) if together else []),
            claims_findings.describe_agreement(
                claims, {source.study for source in sources if source.overview["weights"] == "random"}
            ),
        ],
        claims=tabulate_studies(claims),
        settings=_tabulate_settings(
            {source.study: settings_findings.list_facts(source.overview) for source in sources}
        ),
    )
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path


def _tabulate_settings(facts: Mapping[str, Mapping[str, str]]) -> Listing:
    """Settings of each study, by name."""
    names = dict.fromkeys(name for settings_of in facts.values() for name in settings_of)
    return Listing(
        ("Setting", *facts),
        tuple((name, *(settings_of.get(name, DASH) for settings_of in facts.values())) for name in names),
    )
