"""What sentences say, from rows made by hand."""

import pytest

from reports import listings, words
from reports.words import Row


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.25, "−0.25"),
        (1234.5, "1,234"),
        (-98765.0, "−98,765"),
        (999.94, "1,000"),
        (0.00012345, "0.000123"),
        (2.05e-7, "2.05\u00a0·\u00a010⁻⁷"),
        (-3e20, "−3\u00a0·\u00a010²⁰"),
    ],
)
def test_numbers(value: float, written: str) -> None:
    assert words.number(value) == written


@pytest.mark.parametrize(
    ("share", "written"), [(0, "0"), (0.123456, "12.3"), (0.9994, "99.9"), (0.99996, "over 99.9"), (1, "100")]
)
def test_a_hundred_per_cent_is_all(share: float, written: str) -> None:
    assert words.percent(share) == f"{written}\u00a0%"


def test_runs_are_written_from_end_to_end() -> None:
    shown = [1, 2, 3, 5, 8, 13, 21]
    assert words.spans([5, 3, 2, 21], shown) == "2 to 5, 21"
    assert words.spans([], shown) == ""
    assert words.spans(range(1, 13, 2), range(13)) == "1, 3, 5, 7, 9 and more"


def bounds(n: int, mean: float, lower: float | None, upper: float | None, free: float | None) -> list[Row]:
    """Rows of ``bounds_by_n`` for Recall at one N."""
    row = {"metric": "recall", "n": n, "mean": mean, "ci_low": None, "ci_high": None}
    return [
        row | {"family": "printed", "lower": lower, "upper": upper},
        row | {"family": "scale_free", "lower": free, "upper": None},
        row | {"family": "printed", "metric": "precision", "lower": 1.0, "upper": 1.0},
    ]


CURVE = [
    *bounds(1, 1.0, None, None, 1.0),
    *bounds(2, 0.8, 0.1, 0.9, 0.2),
    *bounds(3, 0.8, 0.1, 0.7, 0.2),
    *bounds(4, 0.05, 0.1, 0.7, 0.01),
    *bounds(5, 0.3, 0.1, 0.7, 0.4),
]


def test_a_mean_is_set_beside_the_bounds_of_its_own_metric() -> None:
    rows = words.beside_bounds(CURVE, "recall")
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["outside"] for row in rows] == [False, False, True, True, True]
    assert rows[4]["scale_free_lower"] == 0.4
    assert (rows[4]["lower"], rows[4]["upper"]) == (0.1, 0.7)


def test_the_envelope_is_told_with_what_lies_outside() -> None:
    text = words.envelope(words.beside_bounds(CURVE, "recall"), "recall")
    assert "inside the printed envelope at 2 of the 4 N shown, above it at N = 3, below it at N = 4." in text
    assert "below the scale-free lower bound at N = 5." in text


def test_a_bound_of_nothing_but_zero_is_told_so() -> None:
    rows = [*bounds(1, 1.0, None, None, 1.0), *bounds(2, 0.8, 0.1, 0.9, 0.0)]
    assert "is 0 at every N above 1" in words.envelope(words.beside_bounds(rows, "recall"), "recall")
    only = bounds(1, 1.0, None, None, 1.0)
    assert (
        words.envelope(words.beside_bounds(only, "recall"), "recall") == "No N has printed bounds to compare it with."
    )


def test_elbows_count_those_without_one() -> None:
    heads = [{"elbow_n": n} for n in (1, 3, 9, None)]
    text = words.elbows(heads)
    assert text.startswith("2 of 3 heads have their elbow at N = 1 to 4; the median is N = 3, the largest N = 9.")
    assert text.endswith("1 head more has none.")


def test_listings_have_a_cell_for_every_heading() -> None:
    claim = {"figure": "Figure 2", "statement": "s", "measure": "m", "value": None, "direction": "<=", "threshold": 0.5}
    shown = listings.claims([claim | {"supported": supported} for supported in (True, False, None)])
    assert [row[-1] for row in shown.rows] == ["✓ yes", "✗ no", "? cannot be judged"]
    assert {row[3:5] for row in shown.rows} == {("–", "≤ 0.5")}
    assert {len(row) for row in shown.rows} == {len(shown.headings)}
