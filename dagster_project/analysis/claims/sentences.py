"""A claim's verdict in a sentence, with the numbers it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from dagster_project.analysis.claims.records import Claim, Measure, Part
from geometry.statistics.intervals import Estimate
from reports.findings.claims import format_threshold
from reports.findings.numbers import format_with_interval, join_words

Shown = tuple[Part, Measure, Estimate]  # A part of a claim, what it measures, and the estimate


@dataclass(frozen=True)
class Requirement:
    """What would decide a claim."""

    sequences: int | None = None  # Number of sequences; None if no number would
    limited_by: str | None = None  # What of the model there is too little of, whatever the number of sequences


def write_sentence(
    claim: Claim,
    verdict: str,
    parts: Sequence[Shown],
    reason: str | None,
    need: Requirement,
    beside: Sequence[tuple[Measure, Estimate]] = (),
) -> str:
    """The sentence of a claim, of whose parts the measures exist; ``reason`` says why it is not testable.

    beside: measures that are told with those of its parts, and not judged.
    """
    if verdict == "not testable":
        return f"Whether {claim.clause} cannot be tested: {reason}."
    told = "; ".join(f"{measure.label}: {format_estimate(estimate)}" for measure, estimate in beside)
    numbers = _format_parts(claim, parts) + (f"; not judged, {told}" if told else "")
    if verdict == "undecided":
        waits = f"; about {need.sequences:,} sequences would decide" if need.sequences is not None else ""
        if need.limited_by is not None:
            waits = f"; limited by the model’s {need.limited_by}, not by the text"
        return f"Whether {claim.clause} is undecided ({numbers}{waits})."
    clause = claim.clause if verdict == "supported" else claim.denial
    return f"{clause[0].upper()}{clause[1:]} ({numbers})."


def _format_parts(claim: Claim, parts: Sequence[Shown]) -> str:
    """The numbers of a claim, each once, with its name and interval, and what is required of them."""
    required: dict[str, list[str]] = {}
    for part, measure, estimate in parts:
        number = f"{name_part(claim, part, measure)}: {format_estimate(estimate)}"
        required.setdefault(number, []).append(format_threshold(vars(part)))
    thresholds = [join_words(several) for several in required.values()]
    if claim.alternatives:
        return f"{parts[0][1].label}, {'; '.join(required)}; {thresholds[0]} required at one"
    if len(set(thresholds)) == 1:
        return f"{'; '.join(required)}; {thresholds[0]} required{' of each' if len(required) > 1 else ''}"
    return "; ".join(f"{one}, {threshold} required" for one, threshold in zip(required, thresholds, strict=True))


def name_part(claim: Claim, part: Part, measure: Measure) -> str:
    """What tells a part of a claim from the others: of alternatives its κ, else its measure."""
    _, _, kappa = part.measure.removesuffix("]").partition("[")
    return f"κ = {kappa}" if claim.alternatives and kappa else measure.label


def format_estimate(estimate: Estimate) -> str:
    """An estimate with its interval, if it has one."""
    value, low, high = (float(end) for end in (estimate.value, estimate.low, estimate.high))
    return format_with_interval(value, *((None, None) if isnan(low) else (low, high)))
