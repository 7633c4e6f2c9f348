"""A claim's verdict in a sentence, with the numbers it rests on."""

from collections.abc import Sequence
from math import isnan

from dagster_project.analysis.claims.records import Claim, Measure, Part
from geometry.statistics.intervals import Estimate
from reports.findings.claims import format_threshold
from reports.findings.numbers import format_with_interval

Shown = tuple[Part, Measure, Estimate]
"""A part of a claim, what it measures, and the estimate."""


def write_sentence(
    claim: Claim, verdict: str, parts: Sequence[Shown], reason: str | None, sequences_needed: int | None
) -> str:
    """The sentence of a claim, of whose parts the measures exist; ``reason`` says why it is not testable."""
    if verdict == "not testable":
        return f"Whether {claim.clause} cannot be tested: {reason}."
    numbers = format_parts(parts, alternatives=claim.alternatives)
    if verdict == "undecided":
        needed = f"; about {sequences_needed:,} sequences would decide" if sequences_needed else ""
        return f"Whether {claim.clause} is undecided ({numbers}{needed})."
    clause = claim.clause if verdict == "supported" else claim.denial
    return f"{clause[0].upper()}{clause[1:]} ({numbers})."


def format_parts(parts: Sequence[Shown], *, alternatives: bool) -> str:
    """The numbers of a claim, each with its interval, and what is required of them."""
    required = [format_threshold(vars(part)) for part, _, _ in parts]
    if alternatives:
        numbers = [f"{name_part(part, measure)}: {format_estimate(one)}" for part, measure, one in parts]
        return f"{parts[0][1].label}, {'; '.join(numbers)}; {required[0]} required at one"
    if len(parts) == 1:
        return f"{format_estimate(parts[0][2])}, {required[0]} required"
    numbers = [f"{measure.label} {format_estimate(estimate)}" for _, measure, estimate in parts]
    if len(set(required)) == 1:
        return f"{'; '.join(dict.fromkeys(numbers))}; {required[0]} required of each"
    return "; ".join(f"{one}, {threshold} required" for one, threshold in zip(numbers, required, strict=True))


def name_part(part: Part, measure: Measure) -> str:
    """What tells a part of a claim from the others: its κ, if its measure is one of several κ, or its measure."""
    kappa = part.measure.partition("[")[2].rstrip("]")
    return f"κ = {kappa}" if kappa else measure.label


def format_estimate(estimate: Estimate) -> str:
    """An estimate with its interval, if it has one."""
    value, low, high = (float(end) for end in (estimate.value, estimate.low, estimate.high))
    return format_with_interval(value, *((None, None) if isnan(low) else (low, high)))
