"""Summary sentences at the top of a report and at the end of a run."""

import duckdb

from reports.headlines.findings import describe_separation, iterate_gaps, judge_separation, select_facts
from reports.queries import ask


def summarise(connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """Summarise what a study found, at its last query: whether heads separate, what cannot be told, and facts.

    Parameters
    ----------
    connection
        Open warehouse that holds the study; only read from.
    study
        Name of the study.
    """
    facts, claims, measures, (overview,) = (
        ask(connection, name, study=study).rows() for name in ("facts", "claims", "measures", "study_overview")
    )
    return [
        describe_separation(judge_separation(overview, claims, measures)),
        *iterate_gaps(overview, claims),
        *(sentence for sentence, _ in select_facts(facts, claims)),
    ]
