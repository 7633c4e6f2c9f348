"""Findings at the top of a report: the headline numbers, and the main results in a few sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from reports.findings.claims import summarise_claims
from reports.findings.numbers import NAMES, Row, count, drop_nulls, number, percent

MOST_FACTS = 5
"""Largest number of facts that are told at the top of a page and at the end of a run."""


@dataclass(frozen=True)
class Headline:
    """One headline number at the top of a report."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class HeadlineRows:
    """The rows that the numbers at the top of a report come from."""

    heads: Sequence[Row]
    """``heads_at_n``."""
    measures: Sequence[Row]
    """``measures``."""


def describe_separation(heads: Sequence[Row], twins: Sequence[Row], nulls: Sequence[Row], n: int) -> str:
    """Separation by the model, in one sentence.

    From ``heads_at_n`` at ``n`` of the study and of its twin (empty if there is none), and ``separability_by_n``.
    """
    value = _compute_mean(heads, "recall")
    if value is None:
        return "No head has two keys to select from."
    others = {
        "of keys at random": _find_null(nulls, "recall", "random_selection", n),
        "with random weights": _compute_mean(twins, "recall"),
    }
    told = [f"{percent(other)} {what}" for what, other in others.items() if other is not None]
    beside = f", against {' and '.join(told)}" if told else ""
    return (
        f"Of the {n} keys that a head gives most weight, {percent(value)} lie nearer to their weighted sum than any "
        f"other key{beside}."
    )


def build_headlines(
    claims: Sequence[Row], of_study: HeadlineRows, of_twin: HeadlineRows | None, nulls: Sequence[Row], n: int
) -> list[Headline]:
    """The numbers at the top of a report, each with that of the twin.

    From ``claims``, what was measured of the study and of its twin, and ``separability_by_n``; ``n`` is the N of
    ``heads_at_n``.
    """
    return [
        _build_mean(of_study, of_twin, nulls, "precision", n),
        _build_mean(of_study, of_twin, nulls, "recall", n),
        _build_findings(claims),
        _build_measure(of_study.measures, "sink_weight", "Attention on the sink", "mean of all heads", share=True),
        _build_measure(of_study.measures, "lambda_sink", "Value norm of the sink, λ", "median of KV heads"),
    ]


def _compute_mean(rows: Sequence[Row], column: str) -> float | None:
    """The mean of a column over the rows that have it."""
    found = [row[column] for row in drop_nulls(rows, column)]
    return fmean(found) if found else None


def _find_null(nulls: Sequence[Row], measure: str, null: str, n: int) -> float | None:
    """Find the value of a measure under a null at one N (``separability_by_n``)."""
    asked = (measure, null, n)
    return next((row["null_value"] for row in nulls if (row["measure"], row["null_model"], row["n"]) == asked), None)


def _format_comparison(*others: tuple[str, str | None]) -> str:
    """Format the numbers to compare with: names with their numbers, those without one left out."""
    return "; ".join(f"{name} {value}" for name, value in others if value is not None)


def _format_value(value: float | None) -> str | None:
    return None if value is None else number(value)


def _build_mean(
    of_study: HeadlineRows, of_twin: HeadlineRows | None, nulls: Sequence[Row], metric: str, n: int
) -> Headline:
    value = _compute_mean(of_study.heads, metric)
    if value is None:
        return Headline(NAMES[metric], "–", "no head attends to two keys")
    note = _format_comparison(
        ("random keys", _format_value(_find_null(nulls, metric, "random_selection", n))),
        ("random weights", _format_value(_compute_mean(of_twin.heads, metric)) if of_twin else None),
    )
    heads = count(len(drop_nulls(of_study.heads, metric)), "head")
    return Headline(f"{NAMES[metric]} at N = {n}", number(value), note or f"mean of {heads}")


def _build_findings(claims: Sequence[Row]) -> Headline:
    """How many claims are supported here and not by random weights."""
    label = "Findings beyond random weights"
    supported = [row for row in claims if row["verdict"] == "supported"]
    if supported and all(row["beyond_twin"] is None for row in supported):
        return Headline(label, "–", "no result for random weights")
    findings = sum(row["beyond_twin"] is True for row in supported)
    return Headline(label, f"{findings:,}", f"of {count(len(claims), 'claim')} of the paper")


def _build_measure(measures: Sequence[Row], name: str, label: str, basis: str, *, share: bool = False) -> Headline:
    """A measure with its interval and the twin's value; a dash without it."""
    row = next((row for row in measures if row["measure"] == name), None)
    if row is None or row["value"] is None:
        return Headline(label, "–", "no head sees the sink")
    write = percent if share else number
    interval = "" if row["value_low"] is None else f"{write(row['value_low'])} to {write(row['value_high'])}; "
    twin = "" if row["twin_value"] is None else f"; random weights {write(row['twin_value'])}"
    return Headline(label, write(row["value"]), f"{interval}{basis}{twin}")


def describe_facts(facts: Sequence[Row], claims: Sequence[Row]) -> list[str]:
    """What was found, in at most ``MOST_FACTS`` sentences, the largest effects first (``facts``).

    Without any, how many claims have each verdict (``claims``).
    """
    told = [row["sentence"] for row in facts[:MOST_FACTS]]
    return told or ([f"Nothing differs from chance and random weights. {summarise_claims(claims)}"] if claims else [])
