"""What a study found, in sentences of which a page tells the few of largest effect; no verdict on the paper.

A fact is a measure that differs from the value it would have if there were nothing to tell, after Holm's correction for
all facts, and, if the study has a twin of random weights, from the twin's on the same sequences, in the same direction.
Its effect is the smaller of both distances, at the end of the interval that is nearest to none: facts are on the scale
of shares and correlations, and compared by what is certain of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from dagster_project.analysis.claims.layers import Profile
from geometry.statistics.intervals import Estimate
from geometry.statistics.steps import Step
from geometry.statistics.verdicts import ERROR_RATE, correct_holm
from reports.findings.numbers import format_ends, name_share, number, percent


@dataclass(frozen=True)
class FactSources:
    """What sentences are made of."""

    estimates: Mapping[str, Estimate]
    """The measures of the study."""
    profiles: Mapping[str, Profile]
    """The profiles over layers."""
    queries: tuple[int, int]
    """Position of the first and of the last measured query."""

    def share(self, measure: str) -> str:
        """A share as a percentage."""
        return percent(float(self.estimates[measure].value))

    def value(self, measure: str) -> str:
        """A number."""
        return number(float(self.estimates[measure].value))

    def ends(self, measure: str) -> str:
        """The interval of a number, without sign if it is negative throughout."""
        low, high = sorted(abs(float(end)) for end in (self.estimates[measure].low, self.estimates[measure].high))
        return f"{number(low)} to {number(high)}"

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
    subject: str
    """What it is about; a page tells one fact of each subject."""
    measure: str
    """The measure that is 0 if there is nothing to tell."""
    write: Callable[[FactSources], str]
    """Its sentence, if the measure is not 0."""
    shown_by: str
    """The figure of the report that shows it."""


def _write_step(quantity: str, name: str, source: FactSources) -> str:
    profile, measure = source.profiles[quantity], f"{quantity}_step"
    step, layers = profile.step, profile.layers
    assert step is not None  # it has measures  # noqa: S101
    last, following = layers[step.place - 1], layers[step.place]
    moves = "rises" if source.rises(measure) else "falls"
    how, where = _judge_step(quantity, step, source)
    return (
        f"{name} {moves} with depth{how}, from {source.share(f'{quantity}_before_step')} in "
        f"{_name_layers(layers[0], last)} to {source.share(f'{quantity}_after_step')} in "
        f"{_name_layers(following, layers[-1])} (by {source.points(measure)}){where}."
    )


def _judge_step(quantity: str, step: Step, source: FactSources) -> tuple[str, str]:
    """How a quantity changes with depth, and what is said of the place, as far as whole intervals are on one side.

    A step explains more than a slope, and more than half of the sequences have it where the others do.
    """
    slope = source.estimates.get(f"{quantity}_step_over_slope")
    if slope is None or slope.low <= 0 <= slope.high:
        return "", "; whether in a step or by degrees is undecided"
    if slope.high < 0:
        return " by degrees", ""
    agreeing = name_share(float(step.agrees.mean()), len(step.agrees), "sequence")
    there = f"in {agreeing} the largest change is there"
    if source.estimates[f"{quantity}_step_agreement"].low > 0.5:
        return " in a step", f"; {there}"
    return "", f"; the place is undecided: {there}"


def _name_layers(first: int, last: int) -> str:
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def _write_chance(measure: str, name: str, other: str, source: FactSources) -> str:
    moves = "above" if source.rises(measure) else "below"
    size = number(abs(float(source.estimates[measure].value)))
    return f"{name} of the keys of most weight is {size} ({source.ends(measure)}) {moves} that of {other}."


def _write_association(measure: str, name: str, source: FactSources) -> str:
    more = "more" if source.rises(measure) else "less"
    estimate = source.estimates[measure]
    ends = f"{number(float(estimate.low))} to {number(float(estimate.high))}"
    return (
        f"Of the heads of a layer, those whose sink is more similar to the other value states have {more} {name} "
        f"(correlation {source.value(measure)}, {ends})."
    )


def _write_focus(source: FactSources) -> str:
    estimate = source.estimates["focused_share"]
    ends = format_ends(float(estimate.low), float(estimate.high), percent)
    return (
        f"{source.share('focused_share')} of the heads ({ends}) give 90\u00a0% of their attention to at most a tenth "
        "of their keys."
    )


def _write_context(source: FactSources) -> str:
    first, last = source.queries
    measure = "recall_over_context"
    moves = "higher" if source.rises(measure) else "lower"
    size = number(abs(float(source.estimates[measure].value)))
    return (
        f"Recall among {last + 1:,} keys is {size} ({source.ends(measure)}) {moves} than among {first + 1:,} "
        "(mean over heads and ln N)."
    )


def _write_kinds(measure: str, kinds: str, one: str, other: str, source: FactSources) -> str:
    more = one if source.rises(measure) else other
    less = other if source.rises(measure) else one
    return f"{kinds} are commoner in the {more} than in the {less} (by {source.points(measure)})."


RANDOM, SHUFFLED = "as many keys at random (mean over heads and ln N)", "the same weights on shuffled value states"
PRECISION = "Precision, as a share of its range above the floor N / n,"
THIRDS, HALVES = ("first third of the layers", "last third"), ("first half of the layers", "last half")

FACTS = (
    *(
        Fact(name, subject, f"{quantity}_step", partial(_write_step, quantity, what), figure)
        for name, subject, quantity, what, figure in (
            ("sink_step", "sink", "sink_weight", "Attention on the sink", "sink-by-layer"),
            ("recall_step", "depth", "recall", "Recall", "recall-map"),
            ("precision_step", "depth", "precision_excess", PRECISION, "precision-map"),
        )
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


def rank_facts(p_values: Mapping[str, float], effects: Mapping[str, float]) -> dict[str, int]:
    """Rank the facts that are to be told, from 1: those of largest effect, one of each subject.

    Parameters
    ----------
    p_values
        The p value of every fact that could be tested, by name.
    effects
        How much of each is certain; a fact is told if that is above 0.
    """
    corrected = dict(zip(p_values, correct_holm(p_values.values()), strict=True))
    significant = [fact for fact in FACTS if corrected.get(fact.name, 1.0) <= ERROR_RATE and effects[fact.name] > 0]
    first: dict[str, Fact] = {}
    for fact in sorted(significant, key=lambda fact: -effects[fact.name]):
        first.setdefault(fact.subject, fact)
    return {fact.name: rank for rank, fact in enumerate(first.values(), start=1)}
