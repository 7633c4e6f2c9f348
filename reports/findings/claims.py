"""Findings on the paper's claims, in total and claim by claim; sentences are those of the table ``claims``."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from reports.findings.numbers import Row, count, format_with_interval, number

VERDICTS = {
    "supported": ("✓", "Supported"),
    "not supported": ("✗", "Not supported"),
    "undecided": ("~", "Undecided"),
    "not testable": ("?", "Not testable"),
}
"""For each verdict its symbol and its word."""

BEYOND = "_beyond_random_weights"  # Ends the name of a measure that is another one less that of the study's twin
SIGNS = {"<=": "at most", "<": "below", ">=": "at least", ">": "above"}  # Words for a direction before a threshold


def summarise_claims(rows: Sequence[Row]) -> str:
    """How many claims have each verdict, and how many of those supported go beyond random weights (``claims``)."""
    counts = Counter(row["verdict"] for row in rows)
    others = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict != "supported")
    held = counts["supported"]
    supported = f"{held or 'none'} {'are' if held > 1 else 'is'} supported{_compare_with_twin(rows)}"
    return f"Of {count(len(rows), 'claim')}, {supported}; {others}."


def _compare_with_twin(rows: Sequence[Row]) -> str:
    """Compare the supported claims with random weights; empty if none is supported."""
    counts = Counter(row["beyond_twin"] for row in rows if row["verdict"] == "supported")
    if not counts:
        return ""
    phrases = {
        True: f"{counts[True]} of them beyond random weights",
        False: f"{counts[False]} not beyond random weights and so not a finding",
        None: f"{counts[None]} with no result for random weights",
    }
    return f" ({', '.join(text for beyond, text in phrases.items() if counts[beyond])})"


def describe_agreement(rows: Mapping[str, Sequence[Row]], random: Collection[str] = ()) -> str:
    """Number of claims with one verdict in several studies, of which some are ``random`` (``claims`` of each)."""
    verdicts_of = [[row["verdict"] for row in of_study] for of_study in rows.values()]
    decided = [same for same in zip(*verdicts_of, strict=True) if set(same) <= {"supported", "not supported"}]
    same = sum(len(set(verdicts)) == 1 for verdicts in decided)
    text = f"Of the {count(len(decided), 'claim')} that are decided in every study, {same} have the same verdict in all"
    if not random or not same:
        return f"{text}."
    return f"{text}; since random weights have it too, these verdicts say nothing about training."


def format_threshold(part: Row) -> str:
    """Format the value that a part of a claim requires of its measure."""
    return f"{SIGNS[part['direction']]} {number(part['threshold'])}"


def format_interval(
    row: Row, name: str = "value", write: Callable[[float], str] = number, *, low: str = "low", high: str = "high"
) -> str:
    """Format a value with its interval over its ``sequences``, if it says how many; empty without a value."""
    if row[name] is None:
        return ""
    return format_with_interval(row[name], row[low], row.get(high), write, sequences=row.get("sequences") or 0)


def format_decisive(claim: Row) -> str:
    """Format the measure on which a verdict rests, the first that has it, and what is required; empty if none has."""
    known = [part for part in claim["parts"] if part["value"] is not None]
    part = next((part for part in known if part.get("verdict") == claim["verdict"]), next(iter(known), None))
    if part is None or claim["verdict"] == "not testable":
        return ""
    label = f"{part['label']}: " if part["label"] else ""
    return f"{label}{format_interval(part)}; {format_threshold(part)}"
