"""Ad hoc SQL over the warehouse: reading only, errors in one line.

Holds ``query``. What does not belong here: opening the warehouse (``storage.warehouse``) and printing results.
"""

import duckdb
import pyarrow as pa
from duckdb import StatementType

from storage.errors import UserError

READING = {StatementType.SELECT, StatementType.EXPLAIN, StatementType.PRAGMA, StatementType.CALL, StatementType.MULTI}
"""Statements that read; MULTI is a PIVOT."""


def query(connection: duckdb.DuckDBPyConnection, text: str) -> pa.RecordBatchReader:
    """Run one or more reading statements and return the result of the last, as a stream.

    The stream ends when the connection does anything else; it never holds more than a few batches in memory.

    Raises
    ------
    UserError
        If ``text`` holds an error, no statement, or a statement that writes.
    """
    try:
        statements = duckdb.extract_statements(text)
        for statement in statements:
            if statement.type not in READING:
                msg = (
                    f"sql only reads, {statement.type.name} is not allowed; `attention-geometry run` writes the tables"
                )
                raise UserError(msg)
        for statement in statements[:-1]:
            connection.execute(statement).fetchall()
        relation = connection.sql(statements[-1].query) if statements else None
        if relation is None:
            msg = "There is no result to show; try: attention-geometry sql 'SELECT * FROM studies'"
            raise UserError(msg)
        reader: pa.RecordBatchReader = relation.to_arrow_reader()
    except duckdb.Error as error:
        raise UserError(" ".join(str(error).split())) from error
    return reader
