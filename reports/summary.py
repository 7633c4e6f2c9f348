"""Summary sentences at the top of a report and at the end of a run."""

import duckdb

from reports.findings.headlines import select_facts
from reports.queries import ask


def summarise(connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """Summarise what a study found, at its last query, in at most five sentences.

    Parameters
    ----------
    connection
        Open warehouse that holds the study; only read from.
    study
        Name of the study.
    """
    facts, claims = (ask(connection, name, study=study).rows() for name in ("facts", "claims"))
    return [sentence for sentence, _ in select_facts(facts, claims)]
