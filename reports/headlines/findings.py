"""Findings at the top of a report and at the end of a run: whether heads separate what they select, and the facts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import duckdb

from geometry.statistics.verdicts import LEAST_SEQUENCES
from reports.findings.claims import BEYOND, summarise_claims
from reports.findings.listings import DASH, Listing
from reports.findings.numbers import Row, count, format_with_interval, join_words, percent
from reports.queries import ask

MOST_FACTS = 5  # Largest number of facts that are told at the top of a page and at the end of a run

TERMS = {
    "Selected": "the N keys to which a head gives most weight; s_N is the sum of their weighted value states.",
    "Nearer": "a key is nearer than another if its weighted value state has the smaller distance from s_N.",
    "Recall": "the share of the selected keys that are nearer than every other key; below, the mean over heads and N.",
}
"""The terms of the first screen, each in a line."""

QUESTION = "Does the geometry of its heads separate what they select?"

KEYS, STATES = "selection_sharpens", "values_sharpen"
"""The claims that compare a model with random selections and with shuffled value states."""

RULE = (
    "The answer follows from the verdicts on two claims in the table of claims: that top-N selection sharpens "
    "separability, and that value states do. Better: Recall, specificity (the share of the other keys that lie farther "
    "than every selected one) and AUC (how often a selected key is nearer than another) are all higher; than with "
    "shuffled value states they must be so by more than with random weights, and beside random weights their excess "
    "over keys at random is compared. Yes: better than all three, which is what both claims say. No: not better than "
    "keys at random, or better than neither of the other two. Otherwise partly."
)
"""How the answer follows from the verdicts on ``KEYS``, ``STATES`` and their parts."""


@dataclass(frozen=True)
class Control:
    """What a model is compared with."""

    name: str
    recall: str  # Its Recall on the same average; empty if that is not known
    lead: str  # By how much it is less than the model's, with its interval, in percentage points; empty if not known
    is_worse: bool | None  # Whether the model separates better; None if that is not decided
    why: str  # The same in words


@dataclass(frozen=True)
class Separation:
    """Whether the heads of a model separate what they select."""

    answer: str
    """``Yes``, ``Partly`` or ``No``; between which of these it is undecided; or ``Not known``, if nothing is tested."""
    recall: str  # Recall of the model with its interval; empty if it is not known
    controls: tuple[Control, ...]


def judge_separation(
    study: Row, claims: Sequence[Row], measures: Sequence[Row], twin_sequences: int | None = None
) -> Separation:
    """Whether the heads of a study separate what they select, by the rule ``RULE``.

    From ``study_overview``, ``claims`` and ``measures``; of the twin the number of its sequences, if that is known.
    """
    judged, known = {row["claim"]: row for row in claims}, {row["measure"]: row for row in measures}
    own = known.get("recall_compared", {})
    keys, states = judged.get(KEYS), judged.get(STATES)
    controls = (
        _compare_with_null("as many keys at random", "random", _judge_parts(keys, beyond=False), known),
        _compare_with_null("shuffled value states", "shuffled", _judge_parts(states), known),
        _compare_with_weights(study, keys, known, twin_sequences),
    )
    tested = _find_gap(keys) is None is _find_gap(states)
    answer = _name_answer([control.is_worse for control in controls]) if tested else "Not known"
    ends = {"low": own.get("value_low"), "high": own.get("value_high"), "sequences": own.get("sequences", 0)}
    recall = "" if own.get("value") is None else format_with_interval(own["value"], write=percent, **ends)
    return Separation(answer, recall, controls)


def _compare_with_null(name: str, null: str, judged: tuple[bool | None, str], measures: Mapping[str, Row]) -> Control:
    recall = _format(measures.get(f"recall_of_{null}", {}), "value", percent)
    lead = _format_points(measures.get(f"recall_over_{null}", {}), "value")
    return Control(name, recall, lead, *judged)


def _compare_with_weights(
    study: Row, claim: Row | None, measures: Mapping[str, Row], twin_sequences: int | None
) -> Control:
    """The comparison with random weights, by the parts of ``KEYS`` that are differences from them."""
    name = "random weights"
    if study["weights"] == "random":
        return Control(name, "", "", False, "these are the weights")
    if claim is None or claim["twin"] is None:
        return Control(name, "", "", None, "not known: there is no twin")
    name += f" ({count(twin_sequences, 'sequence')})" if twin_sequences else ""
    recall, at_random = (
        _format(measures.get(one, {}), "twin_value", percent) for one in ("recall_compared", "recall_of_random")
    )
    recall += f" ({at_random} at random)" if at_random else ""
    lead = _format_points(measures.get("recall_over_random", {}), "twin_difference")
    return Control(name, recall, lead, *_judge_parts(claim, beyond=True))


def _find_gap(claim: Row | None) -> str | None:
    """Why a claim is not tested; None if it is."""
    if claim is None:
        return "not tested"
    return f"not tested: {claim['reason']}" if claim["verdict"] == "not testable" else None


def _judge_parts(claim: Row | None, *, beyond: bool | None = None) -> tuple[bool | None, str]:
    """Whether a claim holds, and why, or only its parts that are differences from a twin, or only the others."""
    gap = _find_gap(claim)
    if claim is None or gap is not None:
        return None, str(gap)
    parts = [part for part in claim["parts"] if beyond is None or part["measure"].endswith(BEYOND) == beyond]
    lacking = [part for part in parts if part["verdict"] != "supported"]
    if not lacking:
        return True, "better"
    failing = [part for part in lacking if part["verdict"] == "not supported"]
    return (
        False if failing else None
    ), f"{'not better' if failing else 'undecided'}{_name(failing or lacking, beyond)}"


def _name(parts: Sequence[Row], beyond: bool | None) -> str:
    """The measures that a comparison lacks; where the others of their claim hold, beside random weights."""
    weights = beyond is None and all(part["measure"].endswith(BEYOND) for part in parts)
    names = join_words(list(dict.fromkeys(part["label"].partition(",")[0] for part in parts)))
    return f"{' by more than with random weights' * weights} in {names}"


def _format(row: Row, name: str, write: Callable[[float], str]) -> str:
    return "" if row.get(name) is None else write(row[name])


def _format_points(row: Row, name: str) -> str:
    """A difference of shares with its interval, in percentage points; empty if it is not known."""
    if row.get(name) is None:
        return ""
    ends = (row[f"{name}_{end}"] for end in ("low", "high"))
    low, high = (None if end is None else 100 * end for end in ends)
    return format_with_interval(100 * row[name], low, high)


def _name_answer(are_worse: Sequence[bool | None]) -> str:
    """The answer, or those between which it is undecided as long as a comparison is."""
    choices = ((True, False) if one is None else (one,) for one in are_worse)
    possible = {
        "no" if not keys or not (states or weights) else "yes" if states and weights else "partly"
        for keys, states, weights in product(*choices)
    }
    first, *others = [answer for answer in ("yes", "partly", "no") if answer in possible]
    return f"Undecided: {join_words([first, *others]).replace(' and ', ' or ')}" if others else first.capitalize()


def describe_separation(separation: Separation) -> str:
    """The answer with the numbers beside it, in a sentence."""
    controls = [f"{one.recall or 'unknown'} for {one.name} ({one.why})" for one in separation.controls]
    recall = f" Recall is {separation.recall}, against {join_words(controls)}." if separation.recall else ""
    return f"{QUESTION} {separation.answer}.{recall}"


def iterate_gaps(study: Row, claims: Sequence[Row]) -> Iterator[str]:
    """What cannot be told of a study, and why (``study_overview``, ``claims``)."""
    if not study["last_n"]:
        yield "No head has two keys to select from."
    if study["sequences"] < LEAST_SEQUENCES:
        yield (
            f"With {count(study['sequences'], 'sequence')} nothing can be tested: {LEAST_SEQUENCES} or more are "
            "needed. Numbers are those of this text alone."
        )
    if study["model"] == "synthetic":
        yield "The heads are drawn from the assumptions of the paper: what is found is no fact about a model."
    elif study["weights"] == "random":
        yield "The weights are random: what is found comes from the architecture and the text, not from training."
    else:
        if not any(row["twin"] for row in claims):
            yield (
                "There is no twin with random weights: what training has made cannot be told from what the "
                "architecture gives without it, so that no facts are stated (`twin: random` makes one)."
            )
        if not study["probed"]:
            yield (
                "There is no probe of repeated tokens: heads that copy what came before (induction, duplicate) cannot "
                "be told, and none is counted (`probe: repeated` reads one)."
            )


def select_facts(facts: Sequence[Row], claims: Sequence[Row]) -> list[tuple[str, str]]:
    """Select at most ``MOST_FACTS`` sentences, the largest effects first, each with the key of its figure.

    From ``facts``; without any, how many claims have each verdict (``claims``). None without a twin, since random
    weights may have the same, nor if no claim can be tested. What ``judge_separation`` tells is not repeated.
    """
    if not any(row["twin"] for row in claims) or all(row["verdict"] == "not testable" for row in claims):
        return []
    others = [row for row in facts if row["subject"] not in {"random", "shuffled"}]
    sentences = [(row["sentence"], row["shown_by"]) for row in others[:MOST_FACTS]]
    return sentences or [
        (f"Nothing differs from chance and random weights. {summarise_claims(claims)}", "claims-table")
    ]


def tabulate_separation(separation: Separation) -> Listing:
    """Recall of a model and of the three controls, and whether the model separates better."""
    return Listing(
        ("Measured on", "Recall", "Model’s lead (points)", "Verdict"),
        (
            ("this model", separation.recall or DASH, "", ""),
            *((one.name, one.recall or DASH, one.lead or DASH, one.why) for one in separation.controls),
        ),
    )


def summarise(connection: duckdb.DuckDBPyConnection, study: str) -> list[str]:
    """Summarise what a study found, at its last query: whether heads separate, what cannot be told, and facts.

    Parameters
    ----------
    connection
        Open warehouse that holds the study; only read from.
    study
        Name of the study.
    """
    facts, claims, measures, (overview,) = (
        ask(connection, name, study=study).rows() for name in ("facts", "claims", "measures", "study_overview")
    )
    return [
        describe_separation(judge_separation(overview, claims, measures)),
        *iterate_gaps(overview, claims),
        *(sentence for sentence, _ in select_facts(facts, claims)),
    ]
