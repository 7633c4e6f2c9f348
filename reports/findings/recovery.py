"""How well fits recover planted parameters."""

from collections.abc import Sequence
from math import isfinite
from statistics import median

from reports.findings.numbers import Row, count, known, number

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
"""A standard error below this share of the value is rounding: the parameter does not vary over sequences."""


def compared(rows: Sequence[Row]) -> list[Row]:
    """Rows whose parameter was fitted, and planted with a finite number (``planted_recovery``)."""
    return [row for row in known(rows, "difference") if isfinite(row["planted"])]


def recovery(rows: Sequence[Row], parameter: str) -> str:
    """How far one parameter lies from what was planted (``planted_recovery``, rows of that parameter)."""
    errors = [abs(row["difference"]) for row in compared(rows)]
    name = PARAMETERS[parameter]
    if not errors:
        return f"{name} was fitted in no head."
    return (
        f"{name} lies {number(median(errors))} from what was planted at the median of {count(len(errors), 'head')}, "
        f"{number(max(errors))} at most."
    )


def recovered(rows: Sequence[Row]) -> str:
    """How many planted parameters were fitted, and how many within two standard errors (``planted_recovery``)."""
    fitted = compared(rows)
    judged = [row for row in known(fitted, "standard_error") if row["standard_error"] > EXACT * abs(row["fitted"])]
    near = sum(abs(row["difference"]) <= 2 * row["standard_error"] for row in judged)
    within = f"; {near} of {len(judged)} lie within two standard errors, where 95 % should" if judged else ""
    return f"{len(fitted)} of {count(len(rows), 'planted parameter')} were fitted{within}."
