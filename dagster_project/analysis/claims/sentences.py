"""A claim's verdict in a sentence, with the numbers it rests on."""

from collections.abc import Sequence

from dagster_project.analysis.claims.records import Claim, Measure, Part
from geometry.statistics.intervals import Estimate
from reports.findings.numbers import number

SIGNS = {"<=": "at most", "<": "below", ">=": "at least", ">": "above"}
"""Words for a direction before a threshold."""

Shown = tuple[Part, Measure, Estimate]
"""A part of a claim, what it measures, and the estimate."""


def write_sentence(
    claim: Claim, verdict: str, parts: Sequence[Shown], reason: str | None, sequences_needed: int | None
) -> str:
    """The sentence of a claim.

    Parameters
    ----------
    claim
        The claim.
    verdict
        Its verdict.
    parts
        The parts whose measures exist.
    reason
        Why it is not testable.
    sequences_needed
        The number of sequences that would decide it.
    """
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
    if alternatives:
        return (
            "; ".join(
                f"κ = {part.measure.partition('[')[2].rstrip(']')}: {format_estimate(estimate)}"
                for part, _, estimate in parts
            )
            + f"; {format_required(parts[0][0])} required at one"
        )
    if len(parts) == 1:
        part, _, estimate = parts[0]
        return f"{format_estimate(estimate)}, {format_required(part)} required"
    required = {format_required(part) for part, _, _ in parts}
    shared = len(required) == 1
    texts = dict.fromkeys(
        f"{measure.label} {format_estimate(estimate)}" + ("" if shared else f", {format_required(part)} required")
        for part, measure, estimate in parts
    )
    return "; ".join(texts) + (f"; {required.pop()} required of each" if shared else "")


def format_estimate(estimate: Estimate) -> str:
    """An estimate with its interval, if it has one."""
    value, low, high = (float(end) for end in (estimate.value, estimate.low, estimate.high))
    return number(value) if low != low else f"{number(value)} ({number(low)} to {number(high)})"  # noqa: PLR0124 (NaN)


def format_required(part: Part) -> str:
    """What a part requires of its measure."""
    return f"{SIGNS[part.direction]} {number(part.threshold)}"
