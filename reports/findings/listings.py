"""Tables of a page in words and symbols, and how their cells are written; loads no library of charts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reports.findings.claims import format_interval
from reports.findings.numbers import Row, number, percent

DASH = "–"


@dataclass(frozen=True)
class Listing:
    """A table that is shown in words and symbols: a verdict is never a colour alone, and NULL is a dash."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # As many cells as headings; the first one names the row
    links: tuple[tuple[str, str], ...] = ()
    """For each row a link before its first cell: its words, and the key of its figure; no links if empty."""
    folded: tuple[str, ...] = ()  # For each row a text that its last cell unfolds; none if empty


Cell = Callable[[Row], str]  # Writes one cell of a row


def tabulate(rows: Iterable[Row], columns: Mapping[str, Cell]) -> Listing:
    """A table of these columns, by heading."""
    return Listing(tuple(columns), tuple(tuple(write(row) for write in columns.values()) for row in rows))


def format_own_interval(row: Row, name: str, write: Callable[[float], str] = number) -> str:
    """Format a value with the interval in the columns that are named after it; empty without a value."""
    return format_interval(row, name, write, low=f"{name}_low", high=f"{name}_high")


def format_number(value: float | None) -> str:
    """Format a number as a cell; a dash for NULL."""
    return DASH if value is None else number(value)


def format_share(value: float | None) -> str:
    """Format a share as a percentage in a cell; a dash for NULL."""
    return DASH if value is None else percent(value)


def format_change(first: float | None, last: float | None, sign: str = "") -> str:
    """Format two values as ``a → b``, or the first and the change if both round to the same; a dash if none."""
    if first is None and last is None:
        return DASH
    if first is not None and last is not None and first != last and number(first) == number(last):
        return f"{sign}{number(first)} ({'+' if last > first else ''}{number(last - first)})"
    return f"{sign}{format_number(first)}\u00a0→\u00a0{sign}{format_number(last)}"
