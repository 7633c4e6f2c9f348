"""Ctrl-C during a statement; what is wrong with one is said with the place."""

import os
import signal
import threading
import time
from typing import Any

import duckdb
import pytest

from storage.errors import UserError
from storage.warehouse.query import query

FOREVER = {
    "before the first row": "SELECT count(*) FROM range(100000000) a, range(1000) b WHERE (a.range * b.range) % 7 = 3",
    "between rows": "SELECT a.range * b.range AS x FROM range(100000000) a, range(1000) b WHERE x % 7777777777 = 3",
}


@pytest.mark.one_case
@pytest.mark.parametrize("text", FOREVER.values(), ids=FOREVER)
def test_ctrl_c_stops_a_statement_at_once(text: str) -> None:
    with duckdb.connect() as connection:
        began = time.monotonic()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            query(connection, text).read_all()
        assert time.monotonic() - began < 20  # without a thread that waits: some minutes
        assert query(connection, "SELECT 42 AS answer").read_all().to_pylist() == [{"answer": 42}]


class HardOfHearing:
    """A connection that misses the first interrupt, as one does whose statement has not begun."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection, self.calls = connection, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def interrupt(self) -> None:
        self.calls += 1
        if self.calls > 1:
            self._connection.interrupt()


def test_ctrl_c_that_a_statement_misses_stops_it_all_the_same() -> None:
    with duckdb.connect() as connection:
        deaf: Any = HardOfHearing(connection)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            query(deaf, FOREVER["before the first row"])
        assert deaf.calls > 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT 1 AS recall;\nSELECT recal FROM (SELECT 1 AS recall)", "recal"),
        ("FROM nosuch", "nosuch"),
        ("SELECT avg(1, 2, 3)", "avg"),
        ("SELECT 1 WHERE WHERE", "WHERE"),
    ],
)
def test_an_error_of_any_kind_shows_its_place(text: str, place: str) -> None:
    with duckdb.connect() as connection, pytest.raises(UserError) as refused:
        query(connection, text)
    *_, line, caret = str(refused.value).splitlines()
    assert line.startswith("LINE 1: ")
    assert line[caret.index("^") :].startswith(place)
