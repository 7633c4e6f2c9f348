"""How well a softmax can select at all: against N, the number of keys, and the temperature.

A figure without rows is left out, and so is the section if all are.
"""

from collections.abc import Callable

from reports.figures import Figure, Section, Source
from reports.findings import numbers
from reports.limits import charts, findings
from reports.limits.findings import describe_key_budgets


def build_sections(source: Source) -> tuple[Section, ...]:
    """The limits of selection; no section for a study that was landed without them."""
    drawn: tuple[Callable[[Source], Figure | None], ...] = (
        _build_distances,
        _build_convergence,
        _build_distinguishable,
        _build_temperature,
    )
    figures = tuple(figure for draw in drawn if (figure := draw(source)) is not None)
    if not figures:
        return ()
    lead = (
        "How well can a softmax select at all? These are the questions of the paper’s predecessor (arXiv 2508.17821), "
        "which is known here from its abstract and from accounts by others."
    )
    return (Section("limits", "Limits of selection", lead, figures, appendix=True),)


def _build_distances(source: Source) -> Figure | None:
    answer = source.ask_study("distances_by_n")
    rows = numbers.drop_nulls(answer.rows(), "relative_distance")  # unknown if all value states are 0
    if not rows:
        return None
    several = len(findings.list_sizes(numbers.drop_nulls(rows, "beside_random"))) > 1
    return Figure(
        "distance-rest",
        "Distance of the selected keys from the rest",
        numbers.join_sentences(
            findings.describe_distance(rows),
            findings.describe_critical_n(source.ask_query("critical_n").rows()),
            findings.describe_distance_fits(source.ask_study("limit_exponents_of_model").rows()),
        ),
        "Distance of s_N from the sum of the weighted value states left out, over the norm of the sum of all; mean "
        "over heads and sequences; band: 95 % interval over sequences. Random keys: root mean square over all "
        "selections of N keys, in closed form. At N = n the distance is the norm itself. The paper draws no such "
        "figure.",
        answer,
        charts=(charts.distances(answer.rows()), *([charts.distance_ratios(answer.rows())] if several else [])),
        tab="Distance",
        titled=True,
    )


def _build_convergence(source: Source) -> Figure | None:
    answer, heads = source.ask_study("convergence_by_query"), source.ask_query("convergence").rows()
    rows = answer.rows()
    if not rows or not heads:
        return None
    several = len(findings.list_sizes(rows)) > 1
    return Figure(
        "convergence-uniform",
        "Convergence to uniform weights",
        numbers.join_sentences(
            findings.describe_convergence(rows, source.ask_study("limit_exponents_of_model").rows()),
            findings.describe_head_convergence(heads),
            describe_key_budgets(source.ask_query("key_budgets_of_model").rows(), source.ask_study("measures").rows()),
        ),
        "Effective keys: exponential of the entropy of the weights. N₉₀: smallest number of keys that hold 90 % of the "
        "weight. Both are divided by the number of keys and averaged over sequences; band: 10 % to 90 % quantile of "
        "heads. The paper draws no such figure.",
        answer,
        charts=(*([charts.convergence(rows)] if several else []), charts.convergence_of_heads(heads)),
        tab="Uniform weights",
        titled=True,
    )


def _build_distinguishable(source: Source) -> Figure | None:
    answer = source.ask_query("distinguishable_by_n")
    rows = answer.rows()
    if not rows:
        return None
    return Figure(
        "distinguishable-share",
        "Share of the selected keys that can be told apart",
        findings.describe_distinguishable(rows),
        "Share of the selected keys that are nearer to s_N than every key left out, R(rₘᵢₙ, N), from N = 2 on, since "
        "at N = 1 it is 1 by definition. Bands: 95 % interval over sequences, and 10 % to 90 % quantile of heads. "
        "Horizontal lines: range reported for GPT-2. The paper draws Recall without such a range.",
        answer,
        charts=(charts.distinguishable(rows),),
        tab="Told apart",
        broad=True,
    )


def _build_temperature(source: Source) -> Figure | None:
    answer = source.ask_query("sensitivity_bounds_model")
    rows, best = answer.rows(), source.ask_query("best_temperatures", n=max(source.n, 1)).rows()
    if not rows:
        return None
    known = len(rows) > 1 and bool(numbers.drop_nulls(best, "n"))  # the best of several
    return Figure(
        "temperature",
        "Sensitivity and temperature",
        numbers.join_sentences(
            findings.describe_sensitivity(rows), findings.describe_best_temperatures(best) if known else ""
        ),
        "Exact spectral norm of the Jacobian of softmax(l/T), for the weights that the same logits l give at T; band: "
        "10 % to 90 % quantile of heads and sequences. Bars: number of heads by the T of the grid at which their AUC, "
        "or Recall, is largest. The paper uses the weights as they are.",
        answer,
        charts=(charts.sensitivity(rows), *([charts.best_temperatures(best)] if known else [])),
        tab="Temperature",
        titled=True,
    )
