"""What a study found, in sentences of which a page tells the few of largest effect; no verdict on the paper.

A fact is a measure that differs from the value it would have if there were nothing to tell, after Holm's correction for
all facts, and from that of the study's twin, a model of random weights, on the same sequences, in the same direction. A
change over layers must also be larger than those of layers in random order. The effect is the smaller of both
distances, at the end of the interval that is nearest to none: facts are on the scale of shares and correlations, and
compared by what is certain of them. Without a twin, only associations within layers can be told.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from dagster_project.analysis.claims.layers import Profile
from geometry.statistics.intervals import Estimate
from geometry.statistics.verdicts import ERROR_RATE, correct_holm
from reports.findings.numbers import format_ends, number, percent

LEAST_EFFECT = 0.05
"""Distance from chance and from random weights that a fact is certain to exceed: models of random weights differ by as
much among themselves (``benchmarks.random_weights``)."""


@dataclass(frozen=True)
class FactSources:
    """What sentences are made of."""

    estimates: Mapping[str, Estimate]  # The measures of the study
    profiles: Mapping[str, Profile]  # The profiles over layers
    queries: tuple[int, int]  # Position of the first and of the last measured query

    def share(self, measure: str) -> str:
        """A share as a percentage."""
        return percent(float(self.estimates[measure].value))

    def size(self, measure: str) -> str:
        """A difference with its interval, without sign."""
        estimate = self.estimates[measure]
        low, high = sorted(abs(float(end)) for end in (estimate.low, estimate.high))
        return f"{number(abs(float(estimate.value)))} ({number(low)} to {number(high)})"

    def points(self, measure: str) -> str:
        """A difference of shares with its interval, without sign, in percentage points."""
        estimate = self.estimates[measure]
        value, *ends = (100 * abs(float(end)) for end in (estimate.value, estimate.low, estimate.high))
        low, high = sorted(ends)
        return f"{number(value)} percentage points, {number(low)} to {number(high)}"

    def rises(self, measure: str) -> bool:
        """Whether a difference is above 0."""
        return float(self.estimates[measure].value) > 0


@dataclass(frozen=True)
class Fact:
    """A fact that a study may show."""

    name: str
    subject: str  # What it is about; a page tells one fact of each subject
    measure: str  # The measure that is 0 if there is nothing to tell
    write: Callable[[FactSources], str]  # Its sentence, if the measure is not 0
    shown_by: str  # The figure of the report that shows it
    needs_twin: bool = True  # Whether random weights may show it too, so that it is not told without a twin
    applies: Callable[[FactSources], bool] = lambda _: True
    """Whether it is the one to test, of two that exclude each other."""


def _explains_more(quantity: str, source: FactSources, *, kinds: bool) -> bool:
    """Whether a quantity differs more between kinds of layers, or else with depth."""
    change = source.profiles[quantity].change
    return change is not None and change.kinds_explain_more == kinds


def _write_depth(quantity: str, name: str, source: FactSources) -> str:
    profile, measure = source.profiles[quantity], f"{quantity}_over_depth"
    step = profile.change and profile.change.step
    where = f", in a step from layer {profile.layers[step - 1]} to layer {profile.layers[step]}" if step else ""
    return (
        f"{name} {'rises' if source.rises(measure) else 'falls'} with depth, from "
        f"{source.share(f'{quantity}_first_half')} in the first half of the layers to "
        f"{source.share(f'{quantity}_last_half')} in the last (by {source.points(measure)}){where}."
    )


def _write_kinds_of_layers(quantity: str, name: str, source: FactSources) -> str:
    return (
        f"{name} is {source.share(f'{quantity}_full')} in layers of full attention and "
        f"{source.share(f'{quantity}_local')} in layers of local attention (a difference of "
        f"{source.points(f'{quantity}_over_kinds')})."
    )


def _write_chance(measure: str, name: str, other: str, source: FactSources) -> str:
    moves = "above" if source.rises(measure) else "below"
    return f"{name} of the keys of most weight is {source.size(measure)} {moves} that of {other}."


def _write_association(measure: str, name: str, source: FactSources) -> str:
    more = "more" if source.rises(measure) else "less"
    estimate = source.estimates[measure]
    value, low, high = (number(float(end)) for end in (estimate.value, estimate.low, estimate.high))
    return (
        f"Of the heads of a layer, those whose sink is more similar to the other value states have {more} {name} "
        f"(correlation {value}, {low} to {high})."
    )


def _write_focus(source: FactSources) -> str:
    estimate = source.estimates["focused_share"]
    ends = format_ends(float(estimate.low), float(estimate.high), percent)
    return (
        f"{source.share('focused_share')} of the heads ({ends}) give 90\u00a0% of their attention to at most a tenth "
        "of their keys."
    )


def _write_context(source: FactSources) -> str:
    (first, last), measure = source.queries, "recall_over_context"
    moves = "higher" if source.rises(measure) else "lower"
    return (
        f"Recall among {last + 1:,} keys is {source.size(measure)} {moves} than among {first + 1:,}, at the same N "
        "(mean over heads and ln N)."
    )


def _write_kinds(measure: str, kinds: str, one: str, other: str, source: FactSources) -> str:
    more, less = (one, other) if source.rises(measure) else (other, one)
    return f"{kinds} are commoner in the {more} than in the {less} (by {source.points(measure)})."


RANDOM, SHUFFLED = "as many keys at random (mean over heads and ln N)", "the same weights on shuffled value states"
PRECISION = "Precision, as a share of its range above the floor N / n,"
THIRDS, HALVES = ("first third of the layers", "last third"), ("first half of the layers", "last half")

CHANGES = (
    ("sink", "sink", "sink_weight", "Attention on the sink", "sink-by-layer"),
    ("recall", "depth", "recall", "Recall", "recall-map"),
    ("precision", "depth", "precision_excess", PRECISION, "precision-map"),
)
"""Quantities of layers: how their facts begin and their subject, the quantity with its name, and its figure."""

FACTS = (
    *(
        Fact(
            f"{name}_{over}",
            subject,
            f"{quantity}_over_{over}",
            partial(write, quantity, what),
            figure,
            applies=partial(_explains_more, quantity, kinds=over == "kinds"),
        )
        for name, subject, quantity, what, figure in CHANGES
        for over, write in (("depth", _write_depth), ("kinds", _write_kinds_of_layers))
    ),
    *(
        Fact(
            f"{name}_over_{null}",
            null,
            f"{name}_over_{null}",
            partial(_write_chance, f"{name}_over_{null}", of, what),
            "chance-by-n",
        )
        for null, what in {"random": RANDOM, "shuffled": SHUFFLED}.items()
        for name, of in {"recall": "Recall", "auc": "AUC"}.items()
    ),
    Fact(
        "sink_and_recall",
        "similarity",
        "sink_and_recall",
        partial(_write_association, "sink_and_recall", "Recall"),
        "sink-effect",
        needs_twin=False,
    ),
    Fact("focus", "budget", "focused_share", _write_focus, "convergence-uniform"),
    Fact("context", "context", "recall_over_context", _write_context, "context-metrics"),
    *(
        Fact(name, "kinds", measure, partial(_write_kinds, measure, kinds, *parts), "kinds-by-layer")
        for name, measure, kinds, parts in (
            ("retrievers", "retriever_early", "Retrievers", THIRDS),
            ("resets", "reset_early", "Reset heads", HALVES),
            ("mixers", "mixer_late", "Mixers", THIRDS[::-1]),
        )
    ),
)
"""All facts that a study may show."""


def rank_facts(p_values: Mapping[str, float], effects: Mapping[str, float | None]) -> dict[str, int]:
    """Rank the facts that are to be told, from 1: those of largest effect, one of each subject.

    ``p_values``: of every fact that could be tested, by name; ``effects``: how much of each is certain, None if not
    known; a fact is told if that is at least ``LEAST_EFFECT``.
    """
    corrected = dict(zip(p_values, correct_holm(p_values.values()), strict=True))
    known = {fact: effects.get(fact.name) or 0.0 for fact in FACTS}
    certain = [fact for fact in FACTS if corrected.get(fact.name, 1.0) <= ERROR_RATE and known[fact] >= LEAST_EFFECT]
    first: dict[str, Fact] = {}
    for fact in sorted(certain, key=lambda fact: -known[fact]):
        first.setdefault(fact.subject, fact)
    return {fact.name: rank for rank, fact in enumerate(first.values(), start=1)}
