"""Tables of the bounds: effects of parameters, regimes, and inequalities in expectation."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isinf
from operator import itemgetter

from reports.bounds.findings import EFFECTS, FAMILIES
from reports.findings.listings import DASH, Cell, Listing, format_change, format_number, format_share, tabulate
from reports.findings.numbers import Row, number, percent

_ROLES = {
    "d": "components of a value state",
    "L": "number of keys",
    "N": "number of selected keys",
    "a_0": "weighted norm of the sink",
    "a_min_in": "smallest weighted norm among the selected",
    "a_max_out": "largest weighted norm among the others",
    "beta": "decay of similarity",
    "eta": "amplitude of the oscillation",
    "omega": "frequency of the oscillation",
    "T_1": "end of the plateau",
    "T_2": "start of the growth",
}


_FACTORS = {"a_0", "a_min_in", "a_max_out"}
"""Parameters that are multiplied, not set."""


_OF_OSCILLATION = {"omega", "T_1"}
"""Parameters that only weights with an oscillation have."""


_ARROWS = {1: "↑", -1: "↓", 0: DASH}


def tabulate_effects(rows: Iterable[Row], *, oscillates: bool) -> Listing:
    """Table 1: effect of each parameter on the lower bounds, next to the paper's arrow (``parameter_effects``).

    If the weights do not oscillate, η is that of the growth, and there is no ω or T_1 to vary.
    """
    headings = (
        "Parameter",
        "Meaning",
        "Base value",
        "From, to",
        "Lower bound of Precision",
        "Lower bound of Recall",
        "Change of the log miss",
    )
    return Listing(
        (*headings, "Here", "Paper", "Agrees"), tuple(_build_effect_row(row, oscillates=oscillates) for row in rows)
    )


def _build_effect_row(row: Row, *, oscillates: bool) -> tuple[str, ...]:
    paper = _ARROWS.get(row["paper_effect"], "mixed")
    name, role = EFFECTS[row["parameter"]], _ROLES[row["parameter"]]
    if not oscillates and row["parameter"] in _OF_OSCILLATION:
        return (name, role, *[DASH] * 6, paper, DASH)
    if not oscillates and row["parameter"] == "eta":
        name, role = f"{name} (growth)", "rate of the growth"
    return (
        name,
        role,
        DASH if row["parameter"] in _FACTORS or row["base"] is None else number(row["base"]),
        format_change(row["low"], row["high"], "×" if row["parameter"] in _FACTORS else ""),
        format_change(row["precision_lower_low"], row["precision_lower_high"]),
        format_change(row["recall_lower_low"], row["recall_lower_high"]),
        _format_difference(row["log_miss_low"], row["log_miss_high"]),
        _ARROWS.get(row["effect"], DASH),
        paper,
        {True: "✓ yes", False: "✗ no", None: DASH}[row["agrees"]],
    )


_TRENDS = {1: "↗", -1: "↘", 0: "→"}


def tabulate_regimes(model: Iterable[Row], counts: Iterable[Row]) -> Listing:
    """Table 2: regimes of the selection (``regimes_of_model``), with how many heads have each (``regime_counts``)."""
    none = {"heads": 0, "rising": None, "falling": None}
    of_heads = {row["regime"]: row for row in counts}
    return tabulate(
        ({**none, **of_heads.get(row["regime"], {}), **row} for row in model),
        {
            "Regime": itemgetter("regime"),
            "Composition in the paper": itemgetter("composition"),
            "N": _format_range,
            "Δ/B, from, to": lambda row: format_change(row["margin_first"], row["margin_last"]),
            "Trend": lambda row: _TRENDS.get(row["trend"], DASH),
            "Trend in the paper": lambda row: _TRENDS.get(row["paper_trend"], "n/a"),
            "Share of N with Δ > 0": lambda row: format_share(row["positive_share"]),
            "Heads with it": lambda row: str(row["heads"]),
            "Rising, falling": lambda row: f"{row['rising']}, {row['falling']}" if row["heads"] else DASH,
        },
    )


def _format_range(row: Row) -> str:
    first, last = row["first_n"], row["last_n"]
    return DASH if first is None else f"{first}" if first == last else f"{first}\u00a0to\u00a0{last}"


_INEQUALITIES = {
    "precision_lower": "Lower, Precision",
    "recall_lower": "Lower, Recall",
    "precision_upper": "Upper, Precision",
    "recall_upper": "Upper, Recall",
}


def tabulate_monte_carlo(rows: Iterable[Row]) -> Listing:
    """Share of the grid at which each inequality holds in expectation, with its worst gap (``monte_carlo_summary``)."""
    return tabulate(
        sorted(rows, key=lambda row: list(FAMILIES).index(row["family"])),
        _OF_BOUND
        | {"Points": lambda row: str(row["points"])}
        | {name: partial(_format_expectation, inequality=key) for key, name in _INEQUALITIES.items()},
    )


_OF_BOUND: dict[str, Cell] = {
    "Family": lambda row: FAMILIES[row["family"]],
    "κ": lambda row: format_number(row["kappa"]),
    "Scale": lambda row: row["scale"] or DASH,
}
"""Columns that identify a family of bounds."""


def _format_expectation(row: Row, inequality: str) -> str:
    """Format one inequality: over all points, over those that meet its assumptions, and over single draws."""
    name = inequality.removesuffix("_lower")
    if not row[f"{name}_points"]:
        return DASH
    met = _format_share_of(row[f"{name}_holds_meeting"], row[f"{name}_points_meeting"])
    clauses = [
        f"{_format_share_of(row[f'{name}_holds'], row[f'{name}_points'])} ({format_number(row[f'worst_{name}_gap'])})",
        f"met: {met}" if met != DASH else "",
        f"of draws {format_share(row[f'{inequality}_share'])}",
    ]
    return "; ".join(part for part in clauses if part)


def _format_share_of(share: float | None, points: int) -> str:
    return DASH if share is None else f"{percent(share)} of\u00a0{points:,}"


def tabulate_failures(rows: Sequence[Row]) -> Listing:
    """Inequalities that fail, at how many points, and their worst point (``monte_carlo_failures``)."""
    bound: dict[str, Cell] = {"Bound": lambda row: _INEQUALITIES[row["inequality"]]}
    return tabulate(
        rows,
        bound
        | _OF_BOUND
        | {
            "Fails at": lambda row: f"{row['failing']:,} of\u00a0{row['points']:,}",
            "Fails where met": lambda row: f"{row['failing_meeting']:,} of\u00a0{row['points_meeting']:,}",
            "Worst at": _format_point,
            "Share with Δ > 0": lambda row: format_share(row["premise_share"]),
            "Mean": lambda row: number(row["mean"]),
            "Its bound": lambda row: number(row["bound"]),
            "Gap": lambda row: number(row["gap"]),
        },
    )


def _format_point(row: Row) -> str:
    beta = "∞" if isinf(row["beta"]) else number(row["beta"])
    return (
        f"d = {row['head_dim']}, {row['n_keys']} keys, N = {row['n']}, β = {beta}, λ = {number(row['lambda_sink'])}, "
        f"ρ₀ = {number(row['rho_0'])}"
    )


def _format_difference(first: float | None, last: float | None) -> str:
    return DASH if first is None or last is None else number(last - first)
