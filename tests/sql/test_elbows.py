"""The elbow in SQL against a plain search, and on curves whose elbow one can see."""

import numpy as np
import pytest

from tests.sql.hand_made import MEANS, Row, break_statement, database, find_elbow, rows_of

HEADS = 40
VISIBLE = (
    ([1, 1, 1, 1, 0.1, 0.1, 0.5], 4),  # a cliff after 4
    ([1, 0.9, 0.3, 0.2, 0.15, 0.1], None),  # falls at once: nowhere above the straight line
    ([1, 0.9, 0.53, 0.25, 0.1], None),  # a straight line over ln N, but for a bump
    ([0.5, 0.9, 0.4, 0.3], None),  # rises first
    ([0.5, 0.9, 0.88, 0.3], 3),
    ([0.2, 0.5, 1], None),  # never falls
)
"""Curves, of Precision and Recall alike, whose elbow one can see."""


def curves() -> list[list[tuple[float, float]]]:
    """Precision and Recall from N = 1 of many heads: smooth and rough, short and long, some that never fall."""
    rng = np.random.default_rng(0)
    found = []
    for head in range(HEADS):
        size = int(rng.integers(1, 40))
        if head % 4 == 0:
            numbers = rng.choice([0.25, 0.5, 1.0], (size, 2))  # ties
        else:
            n = np.arange(1, size + 1)[:, None]
            numbers = np.clip(np.exp(-rng.uniform(0, 1, 2) * n) + rng.uniform(0, 0.1, (size, 2)), 0.01, 1)
        if head % 5 == 0:
            numbers[:, 1] *= rng.integers(0, 2, size)  # Recall of 0
        found.append([(float(precision), float(recall)) for precision, recall in numbers])
    return found


def rows(curve: list[tuple[float, float]], **where: int) -> list[Row]:
    return [
        MEANS | {"query": 9, "n": n, "precision": precision, "recall": recall} | where
        for n, (precision, recall) in enumerate(curve, 1)
    ]


def compare() -> list[Row]:
    """Compare the elbows of heads, and of models of one head for each of as many queries."""
    each = [*curves(), *([(value, value) for value in means] for means, _ in VISIBLE)]
    means = [row for head, curve in enumerate(each) for row in rows(curve, layer=0, head=head)]
    model = [row for query, curve in enumerate(each) for row in rows(curve, query=query, heads=1)]
    with database(selection_means=means, selection_means_model=model) as connection:
        found, of_model = rows_of(connection, "elbows"), rows_of(connection, "elbows_model")
    assert len(found) == len(of_model) == len(each)
    for place, row in [*((row["head"], row) for row in found), *((row["query"], row) for row in of_model)]:
        for name, value in find_elbow(each[place]).items():
            assert row[name] == (value if value is None else pytest.approx(value)), (place, name)
    return found


def test_elbows_are_where_a_plain_search_finds_them() -> None:
    found = compare()
    assert {row["status"] for row in found} == {"ok", "no_bend", "no_decline", "trivial"}
    assert len({row["elbow_n"] for row in found}) > 5
    assert [row["elbow_n"] for row in found[HEADS:]] == [elbow_n for _, elbow_n in VISIBLE]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 * precision * recall / (precision + recall)", "(precision + recall) / 2"),
        ("arg_min(n, (harmonic_mean, n))", "arg_min(n, (harmonic_mean, -n))"),
        ("ln(n / 2) / ln(lowest_n / 2)", "(n - 2) / (lowest_n - 2)"),
        ("arg_max(n, (height, -n))", "arg_max(n, (abs(height), -n))"),
        ("arg_max(n, (height, -n))", "arg_max(n, (-height, -n))"),
        ("arg_max(harmonic_mean, (height, -n))", "max(harmonic_mean)"),
        ("WHERE lowest_n > 2 AND", "WHERE"),
        ("WHERE n > 1", "WHERE true"),
        ("height >= 0.1 *", "height >= 0.2 *"),
        ("height >= 0.1 *", "height > 0 *"),
    ],
)
def test_the_comparison_notices_another_elbow(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    break_statement(monkeypatch, "elbows_of", old, new)
    with pytest.raises(AssertionError):
        compare()
