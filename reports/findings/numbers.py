"""Formatting of numbers, names and lists, for every sentence and table of a report."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

Row = dict[str, Any]

NAMES = {"precision": "Precision", "recall": "Recall", "f_r_min": "F(rₘᵢₙ)", "f_r_max": "F(rₘₐₓ)"}
"""Names of the metrics."""


def number(value: float) -> str:
    """Format a number with three significant digits: ``1,024``, ``0.0123``, ``−2.5``, ``3.1 · 10⁻⁷``."""
    if 999.5 <= abs(value) < 1e15:
        return f"{value:,.0f}".replace("-", "−")
    digits, _, power = f"{value:.3g}".replace("-", "−").partition("e")
    if not power:
        return digits
    raised = str(int(power.replace("−", "-"))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}\u00a0·\u00a010{raised}"


OVER = "over 99.9"


def percent(share: float) -> str:
    """Format a share of 1 as a percentage; 100 only if it is all."""
    written = number(100 * share)
    return f"{OVER if written == '100' and share < 1 else written}\u00a0%"


COUNTED = 1000  # Of at most so many things a share is told as their number: no percentage of three digits says more


def count_share(share: float, total: int) -> str:
    """Say how many of ``total`` things a share of them is: ``5``, ``all`` or ``none``; of many a percentage."""
    number_of = round(share * total)
    return percent(share) if total > COUNTED else {total: "all", 0: "none"}.get(number_of, f"{number_of:,}")


def name_share(share: float, total: int, noun: str, plural: str = "") -> str:
    """Say of how many things a share is: ``5 of 8 heads``, ``all 8 heads``, ``the only head``, ``none of 8 heads``."""
    some, things = count_share(share, total), count(total, noun, plural)
    if some == "all":
        return f"all {things}" if total > 1 else f"the only {noun}"
    return f"{some} of {things}"


def format_with_interval(
    value: float, low: float | None, high: float | None, write: Callable[[float], str] = number, *, sequences: int = 0
) -> str:
    """Write a number with its 95 % interval, if it has one: ``0.5 (0.4 to 0.6)``.

    An interval without width says nothing about other texts; that the number is the same without any one of the
    ``sequences`` is written instead.
    """
    if low is None or high is None:
        return write(value)
    if low == high:
        one = f"one of {sequences:,} sequences" if sequences > 1 else "one sequence"
        return f"{write(value)} (same without any {one})"
    if {write(low), write(high)} == {f"{OVER}\u00a0%"}:
        return write(value)
    return f"{write(value)} ({format_ends(low, high, write)})"


def format_ends(low: float, high: float, write: Callable[[float], str]) -> str:
    """Format the ends of an interval, the unit once: ``0.4 to 0.6``, ``64.2 to 69.4 %``."""
    first = write(low).removesuffix("\u00a0%")
    return f"{first} to {write(high)}"


def count(number_of: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: ``1 head``, ``12 heads``."""
    return f"{number_of:,} {noun if number_of == 1 else plural or noun + 's'}"


def drop_nulls(rows: Iterable[Row], column: str) -> list[Row]:
    """Select the rows that have a value in ``column``."""
    return [row for row in rows if row[column] is not None]


def count_sides(rows: Sequence[Row]) -> str:
    """Count the heads whose interval lies above and below 0; empty if none has one."""
    known = drop_nulls(rows, "low")
    above, below = sum(row["low"] > 0 for row in known), sum(row["high"] < 0 for row in known)
    whole = f"The 95 % interval lies above 0 in {above:,} of {count(len(rows), 'head')} and below in {below:,}."
    return whole if known else ""


def find_span(rows: Iterable[Row], columns: Collection[str], *, most: float = 0.0) -> tuple[float, float]:
    """Smallest and largest value of some columns, with 0 and ``most`` among them."""
    values = [row[column] for row in rows for column in columns if row[column] is not None]
    return min([0.0, *values]), max([most, *values])


def name_head(row: Row) -> str:
    """Name the head of a row."""
    return f"layer {row['layer']}, head {row['head']}"


def find_ends(rows: Collection[Row], column: str) -> tuple[Row, Row]:
    """The rows of the smallest and of the largest value of a column."""
    return min(rows, key=lambda row: row[column]), max(rows, key=lambda row: row[column])


def describe_range(
    rows: Collection[Row], column: str, name: Callable[[Row], str] = name_head, noun: str = "head"
) -> str:
    """Say between which values a column lies, and where: ‘0.1 (layer 0, head 1) to 0.9 (layer 3, head 0)’."""
    values = dict.fromkeys(row[column] for row in find_ends(rows, column))
    places = {value: [name(row) for row in rows if row[column] == value] for value in values}
    return " to ".join(f"{number(value)} ({_name_first(place, noun)})" for value, place in places.items())


def _name_first(places: Sequence[str], noun: str) -> str:
    """The first of some places, and how many others there are."""
    others = len(places) - 1
    return places[0] + (f", and {count(others, f'other {noun}')}" if others else "")


LEVEL = 0.05  # A curve that stays within a range of this size counts as level


def describe_course(curve: Iterable[Row], column: str) -> str:
    """Describe a curve from the first N to the last, and an extremum in between that is beyond both."""
    rows = sorted(curve, key=lambda row: int(row["n"]))
    first, last = rows[0], rows[-1]
    low, high = find_ends(rows, column)

    def format_point(row: Row) -> str:
        return f"{number(row[column])} at N = {row['n']:,}"

    if len(rows) == 1:
        return f"is {format_point(first)}, the only N"
    if high[column] - low[column] < LEVEL:
        ends = dict.fromkeys(number(row[column]) for row in (low, high))
        return f"stays {'between' if len(ends) > 1 else 'at'} {' and '.join(ends)}"
    beyond = {
        "lowest": (low, min(first[column], last[column]) - low[column]),
        "highest": (high, high[column] - max(first[column], last[column])),
    }
    name, (row, excess) = max(beyond.items(), key=lambda item: item[1][1])
    between = f", and is {name} at N = {row['n']:,} ({number(row[column])})" if excess >= LEVEL else ""
    verb = "rises" if last[column] > first[column] else "falls"
    verb = verb if abs(last[column] - first[column]) >= LEVEL else "goes"
    return f"{verb} from {format_point(first)} to {format_point(last)}{between}"


def join_sentences(*parts: str) -> str:
    """Join the parts that are not empty."""
    return " ".join(part for part in parts if part)


def join_words(words: Sequence[str]) -> str:
    """Join words: ‘1, 4 and 7’."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def format_spans(numbers: Iterable[int], among: Sequence[int]) -> str:
    """Format some of the sorted numbers ``among``, runs by their ends: ``1 and 4 to 9``; at most five runs."""
    order = {value: index for index, value in enumerate(among)}
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and order[value] == order[runs[-1][-1]] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    written = [f"{run[0]:,}" if len(run) == 1 else f"{run[0]:,} to {run[-1]:,}" for run in runs]
    return ", ".join(written[:5]) + " and more" if len(written) > 5 else join_words(written)
