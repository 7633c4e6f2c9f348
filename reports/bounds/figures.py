"""Evaluation of the bounds: coverage and width, Tables 1 and 2, and the bounds in expectation."""

from reports.bounds import charts, findings, tables
from reports.figures import Draft, Figure, Section, Source, only_row, select_rows
from reports.findings import numbers
from reports.separation import figures as separation

NO_BOUNDS = "No selection both includes a key besides the sink and leaves one out, so there are no bounds."
NO_PHASES = "The four phases have no fit to the model’s mean weights, so no key belongs to a phase."
NO_GRID = "This study has no Monte Carlo grid; attention-geometry run synthetic computes one."
NO_DRAWS = "The weights of this study have no fit to draw heads from."
_GAPS = {
    "printed": (
        "Each mark is a point of the grid, at each κ and scale: the minimum over λ and ρ₀ of mean minus lower bound. "
        "Crosses lie below 0 by more than three standard errors. Theorems 1 and 2 (equations 12 and 14)."
    ),
    "scale_free": (
        "As for the printed bounds, for the bound without κ. It is proved for independent directions (β = ∞, ρ₀ = 0) "
        "and shown for the others too. It is not from the paper."
    ),
    "correlated": (
        "As for the printed bounds, for a bound whose pairs account for the correlation exp(−β k): exact for Gaussian "
        "directions, which unit vectors approach as d grows, so its assumptions are never met exactly. It is not from "
        "the paper."
    ),
}
"""Notes of each family's figure."""

NO_EFFECTS = "This study has no effects of parameters; they are computed on heads drawn from its fitted assumptions."


def build_bounds(source: Source) -> Section:
    """Every measure with its bounds, and their coverage and width against κ."""
    metrics = ("precision", "recall", "f_r_max", "f_r_min")
    return Section(
        "bounds",
        "Do the bounds hold?",
        "The theorems bound Precision and Recall if Δ > 0, that is, if the smallest selected weighted value state "
        "outweighs those left out. The paper gives no value for κ, the width of angles. Lying within bounds is not "
        "evidence by itself: an envelope as wide as the range covers everything.",
        (
            *(separation.build_bounded(source, metric) for metric in metrics),
            _build_coverage(source),
            _build_width(source),
        ),
        appendix=True,
    )


def build_analysis(source: Source) -> Section:
    """Tables 1 and 2, and the reason if there is no Monte Carlo grid."""
    summary = _build_summary(source)
    return Section(
        "parameters",
        "What moves the bounds",
        "The bounds rest on Δ/B, the margin Δ over the size B of all weighted value states. If Δ ≤ 0, the theorems "
        "imply nothing.",
        (_build_margins(source), _build_regimes(source), _build_effects(source), *([summary] if summary.empty else [])),
        appendix=True,
    )


def build_expectation(source: Source) -> tuple[Section, ...]:
    """Monte Carlo of the bounds; no section if there is no grid (the section on parameters says so)."""
    summary = _build_summary(source)
    if summary.empty:
        return ()
    drawn = {row["family"] for row in source.ask_study("monte_carlo_summary").rows()}
    gaps = (_build_gaps(source, family) for family in findings.FAMILIES if family in drawn)
    section = Section(
        "expectation",
        "The bounds in expectation",
        "Heads are drawn from Assumptions 1 to 3 over a grid of parameters: does the mean over draws lie between "
        "the means of its bounds, as the theorems require?",
        (summary, *gaps, _build_failures(source)),
        appendix=True,
    )
    return (section,)


def _build_coverage(source: Source) -> Figure:
    draft = Draft("coverage", "Coverage of the envelope against κ", source.ask_query("coverage"))
    rows = draft.rows
    if not numbers.drop_nulls(findings.select_printed(rows), "precision_coverage"):
        return draft.leave_empty(source.explain_empty(NO_BOUNDS))
    if not findings.has_variation(rows, charts.COVERAGES):
        return draft.leave_empty(f"it hardly depends on κ. {findings.describe_coverage(rows)}")
    return draft.show(
        findings.describe_coverage(rows),
        "Rows with Δ > 0 are those with N > 1 where it holds in most sequences; at N = 1 Precision and Recall are 1 by "
        "definition. In Figure 5 of the paper the means of the model lie within the bounds at every N; it states "
        "neither κ nor the share of heads.",
        marks="Dashed, horizontal: share of selections of N > 1 with Δ > 0.",
        charts=(charts.coverage(rows),),
    )


def _build_width(source: Source) -> Figure:
    draft = Draft("width", "Width of the envelope against κ", source.ask_query("coverage"))
    rows = draft.rows
    if not numbers.drop_nulls(findings.select_printed(rows), "precision_width"):
        return draft.leave_empty(source.explain_empty(NO_BOUNDS))
    if not findings.has_variation(rows, charts.WIDTHS):
        return draft.leave_empty(f"it hardly depends on κ. {findings.describe_width(rows)}")
    return draft.show(
        findings.describe_width(rows),
        "Mean over rows of the upper minus the lower bound. In Figure 5 of the paper the upper bounds are close at "
        "small and at large N, and the lower ones are conservative in between; it gives no width.",
        charts=(charts.width(rows),),
    )


def _build_effects(source: Source) -> Figure:
    draft = Draft(
        "parameter-effects", "Effect of each parameter on the lower bounds", source.ask_study("parameter_effects")
    )
    rows = draft.rows
    if not rows:
        return draft.leave_empty(NO_EFFECTS)
    row = rows[0]
    return draft.show(
        findings.describe_effects(rows),
        f"Mean over {numbers.count(row['draws'], 'head')} drawn from the assumptions as fitted to this study, at N = "
        f"{row['n']}, κ = {numbers.number(row['kappa'])} and scale ‘{row['scale']}’. If no N has Δ > 0, β and then d "
        "are raised until one has, since few parameters matter otherwise. One parameter goes from low to high; the "
        "others are fixed. The miss is the bound on 1 − Recall; its log shows how the bounds move if they are close "
        "to 0. For N and the profile of weights the paper states a mixed effect.",
        paper="Table 1",
        tab="Parameters",
        listing=tables.tabulate_effects(rows, oscillates=_has_oscillation(source)),
    )


def _has_oscillation(source: Source) -> bool:
    """Whether the fit of the model's weights, from which heads are drawn, has an oscillation; true without a fit."""
    fit = only_row(source.ask_query("assumption_weights_model"))
    return fit is None or fit["eta"] is not None


def _build_regimes(source: Source) -> Figure:
    draft = Draft("regimes", "Regimes of the selection", source.ask_query("regimes_of_model"))
    rows, counts = draft.rows, source.ask_query("regime_counts").rows()
    if not rows and not counts:
        return draft.leave_empty(source.explain_empty(NO_PHASES))
    return draft.show(
        findings.describe_regimes(rows, counts),
        "Keys are selected in order of mean weight. Regimes begin at N = 1, 2, m₁ (first peak of the oscillation), m₂ "
        "(first valley or key of the plateau) and m₃ (all but the rest of the plateau). Trend: sign of the slope of "
        "mean Δ/B over log N. In the paper Δ/B rises while only the tail is selected, and falls from the first peak "
        "on.",
        paper="Table 2",
        tab="Regimes",
        listing=tables.tabulate_regimes(rows, counts),
    )


def _build_margins(source: Source) -> Figure:
    draft = Draft("margins", "Δ/B against N", source.ask_shown("bounds_by_n"))
    printed = select_rows(draft.table, "family", "printed")
    table = select_rows(printed, "metric", "precision").select(["n", "margin", "premise_share"])
    rows = table.to_pylist()
    if not numbers.drop_nulls(rows, "margin"):
        return draft.leave_empty(source.explain_empty(NO_BOUNDS))
    return draft.show(
        findings.describe_margins(rows),
        "Mean over heads and sequences; Δ keeps its sign (equation 8 of the paper).",
        part=table,
        marks="Dashed: 0, above which the theorems apply, and the first N of each regime of the selection.",
        tab="Δ/B against N",
        charts=(charts.margins(rows, source.ask_query("regimes_of_model").rows()),),
        broad=True,
    )


def _build_summary(source: Source) -> Figure:
    draft = Draft("monte-carlo", "Where the inequalities hold", source.ask_study("monte_carlo_summary"))
    if not draft.rows:
        overview = only_row(source.ask_study("study_overview"))
        return draft.leave_empty(NO_DRAWS if overview and overview["grid_asked"] else NO_GRID)
    return draft.show(
        findings.describe_monte_carlo(draft.rows),
        "Share of the points with a bound at which each inequality holds; in brackets, the smallest mean minus lower "
        "bound, or upper bound minus mean. An inequality holds unless the mean over draws lies beyond the bound by "
        "more than three standard errors. Met: points that meet the family’s assumptions; for the printed bounds, "
        "Δ > 0 in every draw, as Theorems 1 and 2 require. Of draws: share of single draws on the right side of their "
        "bound. The paper shows no such test.",
        listing=tables.tabulate_monte_carlo(draft.rows),
        tab="Where they hold",
    )


def _build_failures(source: Source) -> Figure:
    draft = Draft("failures", "Inequalities that fail, and where worst", source.ask_study("monte_carlo_failures"))
    if not draft.rows:
        return draft.leave_empty("No inequality fails at any point of the grid.")
    return draft.show(
        findings.describe_failures(draft.rows),
        "One row per bound that fails at some point of the grid, with the point where it fails worst. Gap: mean minus "
        "lower bound, or upper bound minus mean; if it is below 0, the inequality fails by this amount. The paper "
        "prints its inequalities without such a test.",
        listing=tables.tabulate_failures(draft.rows),
        tab="Which fail",
    )


def _build_gaps(source: Source, family: str) -> Figure:
    name = findings.FAMILIES[family]
    draft = Draft(
        f"{family.replace('_', '-')}-gaps", f"Lower bounds in expectation, {name}", source.ask_study("monte_carlo_grid")
    )
    table = select_rows(draft.table, "family", family)
    rows = table.to_pylist()
    metrics = [metric for metric in ("precision", "recall") if numbers.drop_nulls(rows, f"{metric}_holds")]
    panels = {metric: f"{numbers.NAMES[metric]}, {name}" for metric in metrics}
    if not panels:
        return draft.leave_empty("No point of the grid has such a bound.")
    points = {metric: findings.select_gap_points(rows, metric) for metric in metrics}
    return draft.show(
        numbers.join_sentences(*(findings.describe_gaps(points[metric], panel) for metric, panel in panels.items())),
        _GAPS[family],
        part=table,
        charts=tuple(charts.gaps(rows, metric=metric, title=panel) for metric, panel in panels.items()),
        titled=True,
        tab=f"Gaps, {name}",
    )
