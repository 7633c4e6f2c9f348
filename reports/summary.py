"""The sentences with which a report begins and a run ends."""

import duckdb

from reports.findings.headlines import outstanding
from reports.queries import ask


def summarise(connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """Say in a few sentences what stands out in a study, at its last query.

    Parameters
    ----------
    connection
        Open warehouse that holds the study; only read from.
    study
        Name of the study.
    """
    (overview,) = ask(connection, "study_overview", study=study).rows()
    claims = ask(connection, "claims", study=study).rows()
    names = ("sink_by_head", "learned_sinks", "taxonomy_of_heads")
    answers = (ask(connection, name, study=study, query=overview["query"] or 0) for name in names)
    return outstanding(claims, *(answer.rows() for answer in answers))
