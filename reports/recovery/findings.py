"""Findings on how well fits recover planted parameters."""

from collections.abc import Sequence
from math import isfinite
from statistics import median

from reports.findings.listings import Listing, format_change, format_number
from reports.findings.numbers import Row, count, drop_nulls, number

PARAMETERS = {
    "C": "C",
    "lambda": "λ",
    "beta": "β",
    "rho_0": "ρ₀",
    "p_sink": "p_sink",
    "p_base": "p_base",
    "eta": "η, oscillation",
    "eta_growth": "η, growth",
    "omega": "ω",
    "T_1": "T₁",
    "T_2": "T₂",
}
"""Parameters of the assumptions, as the paper writes them."""

EXACT = 1e-6
"""An interval narrower than this share of the value is rounding: the parameter does not vary over sequences."""


def select_compared(rows: Sequence[Row]) -> list[Row]:
    """Select rows whose parameter was fitted, and planted with a finite number (``planted_recovery``)."""
    return [row for row in drop_nulls(rows, "difference") if isfinite(row["planted"])]


def describe_parameter(rows: Sequence[Row], parameter: str) -> str:
    """Errors of one fitted parameter (``planted_recovery``, rows of that parameter)."""
    errors = [abs(row["difference"]) for row in select_compared(rows)]
    name = PARAMETERS[parameter]
    if not errors:
        return f"{name} was fitted in no head."
    return (
        f"The error of {name} has a median of {number(median(errors))} over {count(len(errors), 'head')} and a maximum "
        f"of {number(max(errors))}."
    )


def describe_recovery(rows: Sequence[Row]) -> str:
    """Number of planted parameters that were fitted, and of those within their intervals (``planted_recovery``)."""
    fitted = select_compared(rows)
    judged = [row for row in drop_nulls(fitted, "low") if row["high"] - row["low"] > EXACT * abs(row["fitted"])]
    near = sum(row["low"] <= row["planted"] <= row["high"] for row in judged)
    within = f"; {near} of {len(judged)} lie within their intervals, where 95 % are expected" if judged else ""
    return f"{len(fitted)} of {count(len(rows), 'planted parameter')} were fitted{within}."


def tabulate_recovery(rows: Sequence[Row]) -> Listing:
    """Errors of each fitted parameter against its planted values (``planted_recovery``)."""
    return Listing(
        ("Parameter", "Heads fitted", "Planted from, to", "Median error", "Largest error", "Median half-width"),
        tuple(_build_recovery_row(name, [row for row in rows if row["parameter"] == name]) for name in PARAMETERS),
    )


def _build_recovery_row(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [abs(row["difference"]) for row in select_compared(rows)]
    planted = [row["planted"] for row in rows]
    widths = [(row["high"] - row["low"]) / 2 for row in drop_nulls(rows, "low")]
    return (
        PARAMETERS[name],
        f"{len(errors)} of {len(rows)}",
        format_change(min(planted, default=None), max(planted, default=None)),
        format_number(median(errors) if errors else None),
        format_number(max(errors, default=None)),
        format_number(median(widths) if widths else None),
    )
