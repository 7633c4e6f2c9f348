"""The comparison of tables before and after a change notices what it is for."""

import numpy as np
import pyarrow as pa
import pytest

from tests.net import compare_tables

KEYS = {"n": [2, 1], "verdict": ["supported", "undecided"]}
SINGLE = np.array([0.1, 3.0], np.float32)


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("means", {"x": SINGLE}, {"x": np.nextafter(SINGLE, np.float32(9))}, False),
        ("means", {"x": SINGLE}, {"x": SINGLE + np.spacing(SINGLE) * np.float32(4)}, True),
        ("means", {"x": [0.1, 3.0]}, {"x": [0.1 + 1e-8, 3.0]}, True),
        ("measures", {"x": [0.1, 3.0]}, {"x": [0.1 + 1e-8, 3.0]}, False),
        ("means", {"x": [0.1, 3.0]}, {"x": [0.1, np.nan]}, True),
        ("means", {"x": [0.1, None]}, {"x": [0.1, 3.0]}, True),
        ("means", {"x": [[0.1], [3.0]]}, {"x": [[0.1], [3.1]]}, True),
        ("means", {"x": [5, 7]}, {"x": [5, 8]}, True),
        ("means", {"verdict": ["supported"] * 2}, {}, True),
        ("studies", {"provenance": ["a", "b"]}, {"provenance": ["c", "d"]}, False),
    ],
)
def test_what_differs_is_told(name: str, before: dict[str, object], after: dict[str, object], differs: bool) -> None:
    one, other = (pa.table(KEYS | columns) for columns in (before, after))
    shuffled = other.take([1, 0])
    assert bool(compare_tables(name, one, shuffled)) == differs
    assert compare_tables(name, one, other.slice(1)) == [" had 2 rows, has 1"]
