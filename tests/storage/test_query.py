"""Ctrl-C during a statement; what is wrong with one is said with the place."""

import os
import signal
import threading
import time

import duckdb
import pytest

from storage.errors import UserError
from storage.warehouse.query import query

FOREVER = {
    "before the first row": "SELECT count(*) FROM range(100000000) a, range(1000) b WHERE (a.range * b.range) % 7 = 3",
    "between rows": "SELECT a.range * b.range AS x FROM range(100000000) a, range(1000) b WHERE x % 7777777777 = 3",
}


@pytest.mark.parametrize("text", FOREVER.values(), ids=FOREVER)
def test_ctrl_c_stops_a_statement_at_once(text: str) -> None:
    with duckdb.connect() as connection:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            query(connection, text).read_all()
        assert time.monotonic() - began < 20  # without a thread that waits: some minutes
        assert query(connection, "SELECT 42 AS answer").read_all().to_pylist() == [{"answer": 42}]


def test_an_error_shows_the_line_with_a_caret_under_the_place() -> None:
    with duckdb.connect() as connection, pytest.raises(UserError) as refused:
        query(connection, "SELECT 1,\n  FROM range(3) LIMITS 2")
    *_, line, caret = str(refused.value).splitlines()
    assert line[caret.index("^") :].startswith("2")
