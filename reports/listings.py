"""Short tables that are shown on the page in words and symbols.

One function per table takes rows and returns headings and cells. A verdict is a word and a symbol, never a colour
alone; NULL is a dash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isinf
from operator import itemgetter
from statistics import median

from reports.findings.bounds import EFFECTS, FAMILIES
from reports.findings.claims import VERDICTS, format_decisive, format_interval
from reports.findings.families import name_quantity
from reports.findings.headlines import Separation
from reports.findings.numbers import Row, drop_nulls, name_head, number, percent
from reports.findings.patterns import LABELS, format_difference
from reports.findings.recovery import PARAMETERS, select_compared
from reports.findings.taxonomy import LABELS as KINDS

DASH = "–"


@dataclass(frozen=True)
class Listing:
    """A table as text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """As many cells as headings; the first one names the row."""
    links: tuple[tuple[str, str], ...] = ()
    """For each row a link before its first cell: its words, and the key of its figure; no links if empty."""
    folded: tuple[str, ...] = ()
    """For each row a text that its last cell unfolds; none if empty."""


Cell = Callable[[Row], str]
"""Writes one cell of a row."""


def _tabulate(rows: Iterable[Row], columns: Mapping[str, Cell]) -> Listing:
    """A table of these columns, by heading."""
    return Listing(tuple(columns), tuple(tuple(write(row) for write in columns.values()) for row in rows))


def tabulate_claims(rows: Sequence[Row], shown_by: Mapping[str, str]) -> Listing:
    """Claims of the paper with what this study shows, by verdict (``claims``).

    Parameters
    ----------
    rows
        ``claims``.
    shown_by
        For each claim, the key of the figure that shows it.
    """
    ordered = sorted(rows, key=lambda row: list(VERDICTS).index(row["verdict"]))
    of_twin: dict[str, Cell] = {"Random weights": _format_twin}
    columns: dict[str, Cell] = {
        "Claim": itemgetter("statement"),
        "Verdict": lambda row: _format_verdict(row["verdict"]),
        **(of_twin if any(row["twin"] for row in rows) else {}),
        "This study; required": lambda row: format_decisive(row) or row["sentence"],
    }
    links = tuple((f"{row['source']}:", shown_by[row["claim"]]) for row in ordered)
    folded = tuple(row["sentence"] if format_decisive(row) else "" for row in ordered)
    return replace(_tabulate(ordered, columns), links=links, folded=folded)


def tabulate_separation(separation: Separation) -> Listing:
    """Recall of a model and of the three controls, and whether the model separates better."""
    return Listing(
        ("Measured on", "Recall", "Model’s lead (points)", "Verdict"),
        (
            ("this model", separation.recall or DASH, "", ""),
            *((one.name, one.recall or DASH, one.lead or DASH, one.why) for one in separation.controls),
        ),
    )


def tabulate_studies(rows: Mapping[str, Sequence[Row]]) -> Listing:
    """Claims of the paper with what each study shows (``claims`` of each)."""
    return Listing(
        ("Claim", "Source", *rows),
        tuple(
            (
                same[0]["statement"],
                same[0]["source"],
                *(_format_judgement(row) for row in same),
            )
            for same in zip(*rows.values(), strict=True)
            if any(row["verdict"] != "not testable" for row in same)
        ),
    )


def tabulate_correlations(rows: Iterable[Row], names: Mapping[str, str]) -> Listing:
    """Rank correlations within layers, and over all heads (``loss_associations``, with names of the measures)."""
    return _tabulate(
        rows,
        {
            "Measure": lambda row: names[row["measure"]],
            "Within layers (interval)": lambda row: format_interval(
                row, "correlation", low="correlation_low", high="correlation_high"
            ),
            "p": lambda row: number(row["p"]),
            "Over all heads": lambda row: _format_number(row["correlation_over_all"]),
            "Heads": lambda row: f"{row['heads']:,}",
        },
    )


def tabulate_error(rows: Iterable[Row], names: Mapping[str, str]) -> Listing:
    """How far the error of 16 keys is ahead of other measures (``loss_associations`` of one kind)."""
    return _tabulate(
        rows,
        {
            "Measure": lambda row: names[row["measure"]],
            "Within layers (interval)": lambda row: format_interval(
                row, "correlation", low="correlation_low", high="correlation_high"
            ),
            "Error ahead by (interval)": lambda row: (
                format_interval(row, "error_ahead", low="error_ahead_low", high="error_ahead_high") or DASH
            ),
            "p (Holm)": lambda row: _format_number(row["error_ahead_p_holm"]),
        },
    )


def tabulate_patterns(rows: Sequence[Row]) -> Listing:
    """How much more often heads of each label are of each kind than all other heads (``measures_by_label``)."""
    row_of = {(row["label"], row["quantity"]): row for row in rows}

    def write(label: str, kind: str) -> str:
        row = row_of.get((label, kind.lower()))
        return DASH if row is None else format_difference(row)

    return Listing(
        ("Label", "Heads: strongest (layer.head)", *KINDS),
        tuple(
            (label, f"{row['heads']:,}: {row['strongest']}", *(write(label, kind) for kind in KINDS))
            for label in LABELS
            if (row := row_of.get((label, "recall")))
        ),
    )


def tabulate_settings(facts: Mapping[str, Mapping[str, str]]) -> Listing:
    """Settings of each study, by name."""
    names = dict.fromkeys(name for settings_of in facts.values() for name in settings_of)
    return Listing(
        ("Setting", *facts),
        tuple((name, *(settings_of.get(name, DASH) for settings_of in facts.values())) for name in names),
    )


def _format_judgement(claim: Row) -> str:
    measured = "" if claim["verdict"] == "not testable" else format_decisive(claim)
    return f"{_format_verdict(claim['verdict'])}\u2002{measured}".rstrip()


def _format_twin(claim: Row) -> str:
    """The verdict for random weights, and for a supported claim whether its measures differ from theirs.

    A claim that is itself a difference from them has none.
    """
    if claim["twin_verdict"] is None:
        return DASH
    compared = {True: "; differs", False: "; does not differ", None: ""}[claim["beyond_twin"]]
    return f"{_format_verdict(claim['twin_verdict'])}{compared}"


def _format_verdict(verdict: str | None) -> str:
    """A verdict with its symbol."""
    return DASH if verdict is None else f"{VERDICTS[verdict][0]}\u00a0{verdict}"


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
        _format_change(row["low"], row["high"], "×" if row["parameter"] in _FACTORS else ""),
        _format_change(row["precision_lower_low"], row["precision_lower_high"]),
        _format_change(row["recall_lower_low"], row["recall_lower_high"]),
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
    return _tabulate(
        ({**none, **of_heads.get(row["regime"], {}), **row} for row in model),
        {
            "Regime": itemgetter("regime"),
            "Composition in the paper": itemgetter("composition"),
            "N": _format_range,
            "Δ/B, from, to": lambda row: _format_change(row["margin_first"], row["margin_last"]),
            "Trend": lambda row: _TRENDS.get(row["trend"], DASH),
            "Trend in the paper": lambda row: _TRENDS.get(row["paper_trend"], "n/a"),
            "Share of N with Δ > 0": lambda row: _format_share(row["positive_share"]),
            "Heads with it": lambda row: str(row["heads"]),
            "Rising, falling": lambda row: f"{row['rising']}, {row['falling']}" if row["heads"] else DASH,
        },
    )


def _format_range(row: Row) -> str:
    """The first and the last N of a regime."""
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
    return _tabulate(
        sorted(rows, key=lambda row: list(FAMILIES).index(row["family"])),
        _OF_BOUND
        | {"Points": lambda row: str(row["points"])}
        | {name: partial(_format_expectation, inequality=key) for key, name in _INEQUALITIES.items()},
    )


_OF_BOUND: dict[str, Cell] = {
    "Family": lambda row: FAMILIES[row["family"]],
    "κ": lambda row: _format_number(row["kappa"]),
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
        f"{_format_share_of(row[f'{name}_holds'], row[f'{name}_points'])} ({_format_number(row[f'worst_{name}_gap'])})",
        f"met: {met}" if met != DASH else "",
        f"of draws {_format_share(row[f'{inequality}_share'])}",
    ]
    return "; ".join(part for part in clauses if part)


def _format_share_of(share: float | None, points: int) -> str:
    return DASH if share is None else f"{percent(share)} of\u00a0{points:,}"


def tabulate_failures(rows: Sequence[Row]) -> Listing:
    """Inequalities that fail, at how many points, and their worst point (``monte_carlo_failures``)."""
    bound: dict[str, Cell] = {"Bound": lambda row: _INEQUALITIES[row["inequality"]]}
    return _tabulate(
        rows,
        bound
        | _OF_BOUND
        | {
            "Fails at": lambda row: f"{row['failing']:,} of\u00a0{row['points']:,}",
            "Fails where met": lambda row: f"{row['failing_meeting']:,} of\u00a0{row['points_meeting']:,}",
            "Worst at": _format_point,
            "Share with Δ > 0": lambda row: _format_share(row["premise_share"]),
            "Mean": lambda row: number(row["mean"]),
            "Its bound": lambda row: number(row["bound"]),
            "Gap": lambda row: number(row["gap"]),
        },
    )


def _format_point(row: Row) -> str:
    """The parameters of a point of the grid."""
    beta = "∞" if isinf(row["beta"]) else number(row["beta"])
    return (
        f"d = {row['head_dim']}, {row['n_keys']} keys, N = {row['n']}, β = {beta}, λ = {number(row['lambda_sink'])}, "
        f"ρ₀ = {number(row['rho_0'])}"
    )


def tabulate_sensitivity(rows: Iterable[Row]) -> Listing:
    """Number of labels that depend on each threshold of the taxonomy (``taxonomy_thresholds``)."""
    return _tabulate(
        rows,
        {
            "Threshold": itemgetter("threshold"),
            "What it decides": itemgetter("meaning"),
            "Value": lambda row: number(row["value"]),
            "Labels changed at −10\u00a0%": lambda row: f"{row['changed_below']:,}\u00a0of\u00a0{row['heads']:,}",
            "Labels changed at +10\u00a0%": lambda row: f"{row['changed_above']:,}\u00a0of\u00a0{row['heads']:,}",
        },
    )


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
        _format_change(min(planted, default=None), max(planted, default=None)),
        _format_number(median(errors) if errors else None),
        _format_number(max(errors, default=None)),
        _format_number(median(widths) if widths else None),
    )


def _format_number(value: float | None) -> str:
    return DASH if value is None else number(value)


def _format_share(value: float | None) -> str:
    return DASH if value is None else percent(value)


def _format_change(first: float | None, last: float | None, sign: str = "") -> str:
    """Format two values as ``a → b``, or the first and the change if both round to the same; a dash if none."""
    if first is None and last is None:
        return DASH
    if first is not None and last is not None and first != last and number(first) == number(last):
        return f"{sign}{number(first)} ({'+' if last > first else ''}{number(last - first)})"
    return f"{sign}{_format_number(first)}\u00a0→\u00a0{sign}{_format_number(last)}"


def _format_difference(first: float | None, last: float | None) -> str:
    return DASH if first is None or last is None else number(last - first)


def tabulate_members(rows: Sequence[Row], links: Mapping[str, str]) -> Listing:
    """The members of a family (``family_members``), and whether each has landed and has a page."""

    def describe_results(row: Row) -> str:
        return "missing" if not row["landed"] else "page" if row["study"] in links else "tables"

    return _tabulate(
        rows,
        {
            rows[0]["axis"] or "Name": itemgetter("value"),
            "Study": itemgetter("study"),
            "Sequences": lambda row: DASH if row["sequences"] is None else str(row["sequences"]),
            "Results": describe_results,
        },
    )


def tabulate_onsets(rows: Sequence[Row]) -> Listing:
    """The quantities that come to exceed a threshold over the members of a family (``family_onsets``)."""
    return _tabulate(
        rows,
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Where": _name_place,
            "Threshold": lambda row: number(row["threshold"]),
            "From": itemgetter("onset"),
            "Last below": itemgetter("last_below"),
            "First above": itemgetter("first_above"),
        },
    )


def _name_place(row: Row) -> str:
    """The place of a row: the model, a layer or a head."""
    if row["layer"] is None:
        return "model"
    return f"layer {row['layer']}" if row["head"] is None else name_head(row)


def tabulate_family_differences(rows: Sequence[Row]) -> Listing:
    """Differences of quantities of the model between two members of a family (``family_differences``)."""
    return _tabulate(
        rows,
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Difference (interval)": lambda row: (
                format_interval(row, "difference", low="difference_low", high="difference_high") or DASH
            ),
            "Pairs": lambda row: "same sequences" if row["paired"] else "other sequences",
        },
    )


def tabulate_overlaps(rows: Sequence[Row]) -> Listing:
    """The heads of each member that share the fewest selected keys with the member before (``family_overlaps``)."""
    return _tabulate(
        rows,
        {
            "Study": itemgetter("label"),
            "Compared with": itemgetter("reference"),
            "Head": _name_place,
            "N": lambda row: str(row["n"]),
            "Shared (interval)": lambda row: format_interval(row, "shared", low="shared_low", high="shared_high"),
        },
    )
