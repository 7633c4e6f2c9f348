"""The warehouse of a study in which nothing is wrong."""

from collections.abc import Iterator

import duckdb
import pytest

from tests.made_up import warehouse
from tests.sql.checking import STUDY


@pytest.fixture(scope="module")
def good() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(STUDY) as connection:
        yield connection
