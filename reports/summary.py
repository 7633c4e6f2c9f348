"""Summary sentences at the top of a report and at the end of a run."""

import duckdb

from reports.findings.headlines import describe_highlights
from reports.queries import ask


def summarise(connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """Summarise the main results of a study, at its last query, in a few sentences.

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
    return describe_highlights(claims, *(answer.rows() for answer in answers))
