"""What is read of a study's twin, a model of random weights, to compare measures and verdicts with it."""

from contextlib import closing
from typing import Any

import duckdb
import numpy as np

from dagster_project.analysis.claims.judging import Twin
from dagster_project.study.home import Home
from storage.warehouse.connection import connect, locate_database


def read_twin(home: Home, name: str | None) -> Twin | None:
    """The measures of a landed twin; None if the study has none, or it has not landed with measures."""
    if name is None or not locate_database(home.warehouse, name).exists():
        return None
    with closing(connect(home.warehouse, studies=[name], described=False)) as connection:
        verdicts = _ask(connection, "SELECT claim, verdict FROM claims WHERE study = $study", name)
        measures = _ask(
            connection, "SELECT measure, value, value_low, value_high FROM measures WHERE study = $study", name
        )
        values = _ask(
            connection,
            "SELECT measure, list(sequence ORDER BY sequence), list(value ORDER BY sequence) FROM measure_values "
            "WHERE study = $study GROUP BY measure",
            name,
        )
    arrays = {}
    for measure, sequences, numbers in values:
        arrays[measure] = np.full(sequences[-1] + 1, np.nan)
        arrays[measure][sequences] = numbers
    known = {measure: (value, low, high) for measure, value, low, high in measures if measure in arrays}
    return Twin(name, arrays, dict(verdicts), known) if verdicts else None


def _ask(connection: duckdb.DuckDBPyConnection, statement: str, study: str) -> list[tuple[Any, ...]]:
    return connection.execute(statement, {"study": study}).fetchall()
