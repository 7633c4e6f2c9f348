"""Findings at the top of a report: how well the model separates, and what was found, in a few sentences."""

from collections.abc import Sequence

from reports.findings.claims import summarise_claims
from reports.findings.numbers import Row, format_with_interval, percent

MOST_FACTS = 5
"""Largest number of facts that are told at the top of a page and at the end of a run."""


def describe_separation(rows: Sequence[Row], twins: Sequence[Row], nulls: Sequence[Row], n: int) -> str:
    """Separation by the model, in one sentence, at the largest N up to ``n`` that the rows have.

    From ``bounds_by_n`` of the study, ``curves_by_n`` of its twin (empty if there is none) and ``separability_by_n``.
    """
    of_model = max((row for row in rows if row["metric"] == "recall" and row["n"] <= n), key=_get_n, default=None)
    if of_model is None:
        return "No head has two keys to select from."
    shown = of_model["n"]
    of_nulls = {(row["measure"], row["null_model"], row["n"]): row["null_value"] for row in nulls}
    of_twins = {(row["metric"], row["n"]): row["mean"] for row in twins}
    others = {
        "of keys at random": of_nulls.get(("recall", "random_selection", shown)),
        "with random weights": of_twins.get(("recall", shown)),
    }
    clauses = [f"{percent(other)} {what}" for what, other in others.items() if other is not None]
    beside = f", against {' and '.join(clauses)}" if clauses else ""
    low, high, sequences = (of_model.get(name) for name in ("low", "high", "sequences"))
    share = format_with_interval(of_model["mean"], low, high, percent, sequences=sequences or 0)
    return (
        f"Of the {shown} keys that a head gives most weight, {share} lie nearer to their weighted sum than any other "
        f"key{beside}."
    )


def _get_n(row: Row) -> int:
    return int(row["n"])


def select_facts(facts: Sequence[Row], claims: Sequence[Row]) -> list[tuple[str, str]]:
    """Select at most ``MOST_FACTS`` sentences, the largest effects first, each with the key of its figure.

    From ``facts``; without any, how many claims have each verdict (``claims``).
    """
    sentences = [(row["sentence"], row["shown_by"]) for row in facts[:MOST_FACTS]]
    if sentences or not claims:
        return sentences
    return [(f"Nothing differs from chance and random weights. {summarise_claims(claims)}", "claims-table")]
