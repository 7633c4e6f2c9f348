"""Sentences and tables of the bounds: coverage, regimes, effects of parameters, and inequalities in expectation."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from math import isinf
from operator import itemgetter

from reports.figures import find_shown_kappa
from reports.findings.listings import DASH, Cell, Listing, format_change, format_number, format_share, tabulate
from reports.findings.numbers import (
    NAMES,
    Row,
    count,
    count_share,
    describe_course,
    drop_nulls,
    format_spans,
    join_sentences,
    number,
    percent,
)

VISIBLE = 0.02  # A share that differs by less over all κ is described, not drawn: its line would be flat


def select_printed(kappas: Sequence[Row]) -> list[Row]:
    """The printed family by κ (``coverage``)."""
    return sorted((row for row in kappas if row["family"] == "printed"), key=lambda row: row["kappa"])


def has_variation(kappas: Sequence[Row], columns: Iterable[str]) -> bool:
    """Whether any of some shares of the printed family differs visibly between two κ (``coverage``)."""
    columns_known = [[row[column] for row in drop_nulls(select_printed(kappas), column)] for column in columns]
    return any(max(shares) - min(shares) >= VISIBLE for shares in columns_known if shares)


def describe_coverage(kappas: Sequence[Row]) -> str:
    """Coverage of the envelope at the κ that is shown, with the share of the premise (``coverage``)."""
    row = find_shown_kappa(kappas)
    if row is None:
        return "No κ has an envelope to compare the means with."
    middle = f"κ = {number(row['kappa'])}, in the middle of those tried"
    shown = _describe_kappa(row, kappas) if row["serves_best"] else middle
    return join_sentences(
        f"At {shown}, of {count(row['rows'], 'mean')} (head, N) {_count_covered(row, 'precision')} lie within bounds "
        f"for Precision and {_count_covered(row, 'recall')} for Recall.",
        _describe_premise(row),
        _describe_scale_free(kappas),
    )


def _describe_kappa(row: Row, kappas: Sequence[Row]) -> str:
    tried = [other["kappa"] for other in select_printed(kappas)]
    ends = {min(tried): ", the smallest tried", max(tried): ", the largest tried"} if len(tried) > 1 else {}
    return f"κ = {number(row['kappa'])}{ends.get(row['kappa'], '')}"


def _describe_premise(row: Row) -> str:
    """Describe the coverage of the bounds where Δ > 0 holds; how often it does is a claim."""
    if row["premise_share"] is None:
        return "Whether Δ > 0 for any N above 1 is unknown."
    if not row["premise_share"]:
        return "The theorems’ premise Δ > 0 holds nowhere for N > 1, so it favours no κ over another."
    if not row["premise_rows"]:
        return "There is no mean for which the theorems’ premise Δ > 0 holds in most sequences."
    return (
        f"Of the {count(row['premise_rows'], 'mean')} for which the theorems’ premise Δ > 0 holds in most sequences, "
        f"{_count_covered(row, 'precision', '_premise')} lie inside for Precision and "
        f"{_count_covered(row, 'recall', '_premise')} for Recall."
    )


def _count_covered(row: Row, metric: str, among: str = "") -> str:
    share = row[f"{metric}_coverage{among}"]
    return "none" if share is None else count_share(share, row["premise_rows" if among else "rows"])


def _describe_scale_free(kappas: Sequence[Row]) -> str:
    row = next((row for row in kappas if row["family"] == "scale_free" and row["rows"]), None)
    if row is None:
        return ""
    return (
        f"The scale-free lower bound lies below {_count_covered(row, 'precision')} of the means for Precision and "
        f"{_count_covered(row, 'recall')} for Recall."
    )


def describe_width(kappas: Sequence[Row]) -> str:
    """Width of the envelope (``coverage``)."""
    row = find_shown_kappa(kappas)
    if row is None or row["precision_width"] is None or row["recall_width"] is None:
        return "No κ has an envelope."
    rows = drop_nulls(select_printed(kappas), "precision_width")
    text = (
        f"At κ = {number(row['kappa'])} the envelope is {number(row['precision_width'])} wide for Precision and "
        f"{number(row['recall_width'])} for Recall, on average over rows; both quantities lie between 0 and 1."
    )
    widths = [row["precision_width"] + row["recall_width"] for row in rows]
    tightest = rows[widths.index(min(widths))]
    return join_sentences(
        text, f"The bounds are tightest at {_describe_kappa(tightest, kappas)}." if len(rows) > 1 else ""
    )


def describe_margins(curve: Sequence[Row]) -> str:
    """Mean Δ/B of the model against N (``bounds_by_n``, one metric of the printed family)."""
    rows = sorted(drop_nulls(curve, "margin"), key=lambda row: row["n"])
    if not rows:
        return "Δ/B is undefined at every N."
    order, positive = [row["n"] for row in rows], [row["n"] for row in rows if row["margin"] > 0]
    above = f"above 0 at N = {format_spans(positive, order)}" if positive else "above 0 at no N"
    return f"Mean Δ/B {describe_course(rows, 'margin')}; it is {above}."


def describe_regimes(model: Sequence[Row], counts: Sequence[Row]) -> str:
    """Where the regimes of the model begin (``regimes_of_model``), and where heads have Δ > 0 (``regime_counts``)."""
    starts = {row["regime"]: row["first_n"] for row in drop_nulls(model, "first_n")}
    places = [f"{name} = {starts[regime]}" for regime, name in _STARTS.items() if regime in starts]
    absent = [row["regime"] for row in model if row["first_n"] is None]
    positive = [
        f"{row['mostly_positive']} of {row['heads']} in {row['regime']}" for row in counts if row["regime"] != "I"
    ]
    return join_sentences(
        f"Medians over the heads and sequences that have a regime: {', '.join(places)}." if places else "",
        f"Regimes without any N: {', '.join(absent)}." if starts and absent else "",
        f"Heads with Δ > 0 at more than half of a regime’s N: {', '.join(positive)}." if positive else "",
    )


_STARTS = {"III": "m₁", "IV": "m₂", "V": "m₃"}  # What the paper calls the first N of a regime


_ROLES = {
    "d": ("d", "components of a value state"),
    "L": ("L", "number of keys"),
    "N": ("N", "number of selected keys"),
    "a_0": ("a₀", "weighted norm of the sink"),
    "a_min_in": ("a_min (in)", "smallest weighted norm among the selected"),
    "a_max_out": ("a_max (out)", "largest weighted norm among the others"),
    "beta": ("β", "decay of similarity"),
    "eta": ("η", "amplitude of the oscillation"),
    "omega": ("ω", "frequency of the oscillation"),
    "T_1": ("T₁", "end of the plateau"),
    "T_2": ("T₂", "start of the growth"),
}
"""Parameters of Table 1, in its order, with their symbols and meanings."""

EFFECTS = {name: symbol for name, (symbol, _) in _ROLES.items()}


def describe_effects(rows: Sequence[Row]) -> str:
    """Number of parameters with the effect that the paper states (``parameter_effects``)."""
    judged = drop_nulls(rows, "agrees")
    if not judged:
        return "No parameter can be compared with the paper’s arrow."
    agree = [row for row in judged if row["agrees"]]
    none = [EFFECTS[row["parameter"]] for row in judged if not row["agrees"] and row["effect"] == 0]
    opposite = [EFFECTS[row["parameter"]] for row in judged if not row["agrees"] and row["effect"] not in (0, None)]
    unmoved = []  # whose lower bounds move by less than 1 % of their size
    for row in (row for row in rows if row["effect"]):
        bounds = [[row[f"{metric}_lower_{end}"] for end in ("low", "high")] for metric in ("precision", "recall")]
        if not any(None in of or abs(of[1] - of[0]) >= 0.01 * max(of) > 0 for of in bounds):
            unmoved.append(EFFECTS[row["parameter"]])
    return join_sentences(
        f"{len(agree)} of {count(len(judged), 'parameter')} with an arrow move the lower bounds in the "
        "paper’s direction.",
        f"In the other direction: {', '.join(opposite)}." if opposite else "",
        f"Without effect: {', '.join(none)}." if none else "",
        *(f"Not tested: {EFFECTS[row['parameter']]}, because {row['untested']}." for row in rows if row["untested"]),
        f"The bounds themselves move by less than 1 % with {', '.join(unmoved)}." if unmoved else "",
    )


FAMILIES = {"printed": "printed", "scale_free": "scale-free", "correlated": "with correlation"}
"""Names of the families of bounds."""


def _describe_holding(rows: Sequence[Row], columns: Sequence[str], which: str) -> str:
    clauses = []
    for column in columns:
        shares = [row[f"{column}_holds{which}"] for row in drop_nulls(rows, f"{column}_holds{which}")]
        ends = dict.fromkeys(percent(end) for end in (min(shares), max(shares))) if shares else ("none",)
        clauses.append(f"{' to '.join(ends)} of the points for {NAMES[column.removesuffix('_upper')]}")
    return " and ".join(clauses)


def describe_monte_carlo(rows: Sequence[Row]) -> str:
    """Share of the grid at which each family's bounds hold in expectation (``monte_carlo_summary``)."""
    told = []
    for (family, name), side in product(FAMILIES.items(), ("lower", "upper")):
        some = [row for row in rows if row["family"] == family]
        columns = [f"{metric}{'_upper' * (side == 'upper')}" for metric in ("precision", "recall")]
        if any(row[f"{column}_points"] for row in some for column in columns):
            known = (drop_nulls(some, f"{column}_holds_meeting") for column in columns)
            met = [row[f"{column}_holds_meeting"] for column, of in zip(columns, known, strict=True) for row in of]
            where_met = f"; where their assumptions are met, at {_describe_holding(some, columns, '_meeting')}"
            most = ", so they fail at the majority of these" if met and max(met) < 0.5 else ""
            by_kappa = ", by κ and scale" if len(some) > 1 else ""
            holding = f"{_describe_holding(some, columns, '')}{by_kappa}{where_met if met else ''}{most}"
            told.append(f"{side.title()} bounds, {name}, hold at {holding}.")
    return join_sentences(*told)


VERDICTS = ("holds", "fails")  # Names in the legend for whether an inequality holds at a point of a grid


def select_gap_points(grid: Sequence[Row], metric: str) -> list[Row]:
    """Points of a Monte Carlo grid that have a lower bound of a metric (``monte_carlo_grid``).

    Each row has ``gap`` (mean minus bound), ``verdict`` (one of ``VERDICTS``) and ``decay`` (β as text) beside its own.
    """
    return [
        {
            **row,
            "gap": row[f"{metric}_gap"],
            "verdict": VERDICTS[not row[f"{metric}_holds"]],
            "decay": "∞" if isinf(row["beta"]) else f"{row['beta']:g}",
        }
        for row in drop_nulls(grid, f"{metric}_holds")
    ]


def describe_gaps(points: Sequence[Row], title: str) -> str:
    """Number of points of a grid at which an inequality fails, and the point of the smallest gap."""
    lowest = min(points, key=lambda row: row["gap"])
    failing = sum(row["verdict"] == "fails" for row in points)
    kappa = "" if lowest["kappa"] is None else f", κ = {number(lowest['kappa'])}"
    where = f"d = {lowest['head_dim']}, {lowest['n_keys']} keys, N = {lowest['n']:,}, β = {lowest['decay']}{kappa}"
    side = "below" if lowest["gap"] < 0 else "above"
    return (
        f"{title}: fails at {failing} of {count(len(points), 'point')}; at worst the mean lies "
        f"{number(abs(lowest['gap']))} {side} the bound ({where})."
    )


def describe_failures(rows: Sequence[Row]) -> str:
    """The bound that fails worst, the one that fails most often, and how many if assumptions are met.

    Rows are those of ``monte_carlo_failures``.
    """
    worst, often = rows[0], max(rows, key=lambda row: row["failing"] / row["points"])
    metric, bound = _split_inequality(worst)
    met = sum(row["failing_meeting"] > 0 for row in rows)
    side = {"lower": "below", "upper": "above"}[bound]
    other, of = _split_inequality(often)
    kappa = "" if often["kappa"] is None else f", κ = {number(often['kappa'])}, scale ‘{often['scale']}’"
    return join_sentences(
        f"The worst failure: the mean {NAMES[metric]} of {number(worst['mean'])} lies {number(abs(worst['gap']))} "
        f"{side} its {bound} bound of {number(worst['bound'])}.",
        f"The {of} bound of {NAMES[other]} ({FAMILIES[often['family']]}{kappa}) fails most often: at "
        f"{often['failing']:,} of {count(often['points'], 'point')}, "
        f"{often['failing_meeting']:,} of {often['points_meeting']:,} where its assumptions are met.",
        f"Of {count(len(rows), 'bound')} listed, {met or 'none'} fail{'s' if met <= 1 else ''} where they are met.",
    )


def _split_inequality(row: Row) -> tuple[str, str]:
    """The metric that a bound is of, and its side."""
    metric, side = row["inequality"].split("_")
    return metric, side


_FACTORS = {"a_0", "a_min_in", "a_max_out"}  # Parameters that are multiplied, not set
_OF_OSCILLATION = {"omega", "T_1"}  # Parameters that only weights with an oscillation have


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
    paper, low, high = _ARROWS.get(row["paper_effect"], "mixed"), row["log_miss_low"], row["log_miss_high"]
    name, role = _ROLES[row["parameter"]]
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
        DASH if None in (low, high) else number(high - low),
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
            "N": lambda row: "\u00a0to\u00a0".join(
                dict.fromkeys(str(row[end] or DASH) for end in ("first_n", "last_n"))
            ),
            "Δ/B, from, to": lambda row: format_change(row["margin_first"], row["margin_last"]),
            "Trend": lambda row: _TRENDS.get(row["trend"], DASH),
            "Trend in the paper": lambda row: _TRENDS.get(row["paper_trend"], "n/a"),
            "Share of N with Δ > 0": lambda row: format_share(row["positive_share"]),
            "Heads with it": lambda row: str(row["heads"]),
            "Rising, falling": lambda row: f"{row['rising']}, {row['falling']}" if row["heads"] else DASH,
        },
    )


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
