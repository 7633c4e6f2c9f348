"""What sentences say, from rows made by hand."""

import pytest

from reports import settings as settings_findings
from reports.assumptions import findings as values_findings
from reports.chance import figures as chance_figures
from reports.claims import figures as claims_figures
from reports.contexts import figures as contexts
from reports.findings import claims as claims_findings
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.headlines import findings as headlines_findings


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.25, "−0.25"),
        (1234.5, "1,234"),
        (-98765.0, "−98,765"),
        (999.94, "1,000"),
        (0.00012345, "0.000123"),
        (2.05e-7, "2.05\u00a0·\u00a010⁻⁷"),
        (-3e20, "−3\u00a0·\u00a010²⁰"),
    ],
)
def test_numbers(value: float, written: str) -> None:
    assert numbers.number(value) == written


@pytest.mark.parametrize(
    ("share", "written"), [(0, "0"), (0.123456, "12.3"), (0.9994, "99.9"), (0.99996, "over 99.9"), (1, "100")]
)
def test_a_hundred_per_cent_is_all(share: float, written: str) -> None:
    assert numbers.percent(share) == f"{written}\u00a0%"


def test_an_interval_without_width_is_told_as_what_all_sequences_have() -> None:
    assert numbers.format_with_interval(0.5, 0.4, 0.6, sequences=8) == "0.5 (0.4 to 0.6)"
    assert numbers.format_with_interval(1, 1, 1, sequences=8) == "1 (same without any one of 8 sequences)"
    assert numbers.format_with_interval(1, 1, 1, numbers.percent) == "100\u00a0% (same without any one sequence)"
    assert numbers.format_with_interval(0.9999, 0.9998, 1) == "1 (1 to 1)"
    assert numbers.format_with_interval(0.9998, 0.9997, 0.9999, numbers.percent) == "over 99.9\u00a0%"
    assert numbers.format_with_interval(0.5, None, None) == "0.5"


def beside(n: int, null: str, low: float | None, high: float | None) -> Row:
    """A row of ``separability_by_n``."""
    return {"measure": "auc", "null_model": null, "n": n, "low": low, "high": high}


def test_auc_is_beside_a_null_where_its_interval_is() -> None:
    random = [beside(n, "random_selection", 0.1, 0.3) for n in (1, 2, 4, 8)]
    ends = {1: (0.0, 0.0), 2: (0.01, 0.1), 4: (-0.1, 0.2), 8: (-0.3, -0.1)}
    shuffled = [beside(n, "shuffled_values", *interval) for n, interval in ends.items()]
    assert chance_figures.describe_nulls([*random, *shuffled], "auc") == (
        "AUC is above that of random selections at N = 1 to 8, and above that of shuffled value states at N = 2 and "
        "below it at N = 8 (95 % intervals of differences)."
    )
    for ends, told in (((-0.1, 0.1), "at no N different from that of random"), ((None, None), "no intervals for AUC")):
        assert told in chance_figures.describe_nulls([beside(1, null, *ends) for null in chance_figures.NULLS], "auc")


def claim(name: str, verdict: str, *, beyond: bool | None = None) -> Row:
    """A row of the query ``claims``, of one part."""
    part = {"measure": "m", "label": "M", "direction": "<=", "threshold": 0.2, "value": 0.5, "low": 0.4, "high": 0.6}
    reason = "there is nothing to test" if verdict == "not testable" else None
    twin = None if beyond is None else "random"
    row = {"claim": name, "verdict": verdict, "sentence": f"So it is of {name}.", "reason": reason, "parts": [part]}
    told = {"source": "Figure 5", "statement": f"So it is of {name}", "shown_by": "elbows"}
    return row | told | {"beyond_twin": beyond, "twin": twin, "twin_verdict": twin and "supported"}


def test_a_summary_tells_the_five_largest_facts_or_else_the_verdicts() -> None:
    claims = [claim("a", "not supported", beyond=False), claim("b", "undecided", beyond=False)]
    facts = [{"sentence": f"Fact {place}.", "shown_by": "elbows", "subject": "depth"} for place in range(1, 8)]
    answered = [{"sentence": "Recall is above chance.", "shown_by": "elbows", "subject": "random"}]
    select = headlines_findings.select_facts
    assert select([*answered, *facts], claims) == [(f"Fact {place}.", "elbows") for place in range(1, 6)]
    ((only, figure),) = select(answered, claims)
    assert only == f"Nothing differs from chance and random weights. {claims_findings.summarise_claims(claims)}"
    assert figure == "claims-table"
    assert select(facts, [claim("a", "supported"), claim("b", "undecided")]) == [], "told without a twin"
    assert select(facts, [claim("a", "not testable", beyond=False)]) == select([], []) == []


STUDIED = {"model": "a", "weights": "trained", "sequences": 8, "last_n": 23, "probed": True}


@pytest.mark.parametrize(
    ("study", "has_twin", "told"),
    [
        ({}, True, []),
        ({}, False, ["no twin"]),
        ({"probed": False}, False, ["no twin", "no probe"]),
        ({"sequences": 2}, True, ["With 2 sequences nothing can be tested: 4 or more are needed"]),
        ({"weights": "random", "probed": False}, False, ["The weights are random"]),
        ({"model": "synthetic", "weights": None, "probed": False}, False, ["drawn from the assumptions"]),
        ({"last_n": None}, True, ["No head has two keys"]),
    ],
)
def test_what_cannot_be_told_is_said(study: Row, has_twin: bool, told: list[str]) -> None:
    found = [*headlines_findings.iterate_gaps(STUDIED | study, [claim("a", "supported", beyond=has_twin or None)])]
    assert len(found) == len(told)
    assert all(part in sentence for part, sentence in zip(told, found, strict=True)), found


def test_a_verdict_is_told_with_the_measure_that_decides_it() -> None:
    """Of several measures the first with the verdict, with what it must exceed; the whole sentence is folded."""
    one = claim("a", "not supported")["parts"][0]
    parts = [one | {"verdict": "supported"}, one | {"verdict": "not supported", "label": "L", "value": 0.7}]
    row = claim("a", "not supported") | {"parts": parts}
    assert claims_findings.format_decisive(row) == f"L: 0.7 (0.4 to 0.6); {claims_findings.format_threshold(one)}"
    assert claims_findings.format_decisive(row | {"parts": [one | {"value": None}]}) == ""
    assert claims_findings.format_decisive(row | {"verdict": "not testable"}) == ""
    shown = claims_figures.tabulate_claims([row], {"a": "elbows"})
    assert shown.folded == (row["sentence"],)


Y, N, U = "supported", "not supported", "undecided"
UNTESTED = "not testable"


def compared(
    keys: str, states: str, *, beyond: str, states_beyond: str = Y, twin: str | None = "random", ends: Row | None = None
) -> list[Row]:
    """The claims behind the answer, each decided by its parts: AUC is as said, Recall above."""

    def list_parts(name: str, auc: str) -> list[Row]:
        return [
            {"label": f"{label}, if any", "measure": f"{label.lower()}_{name}", "threshold": 0.0, "verdict": verdict}
            | (ends or {"low": 0.1, "high": 0.2})
            for label, verdict in {"Recall": UNTESTED if auc == UNTESTED else Y, "AUC": auc}.items()
        ]

    def join(parts: list[Row]) -> str:
        of_parts = {part["verdict"] for part in parts}
        return next((verdict for verdict in (UNTESTED, N, U) if verdict in of_parts), Y)

    row = {"reason": "none", "twin": twin, "sequences": 8}
    parts = {
        "selection_sharpens": list_parts("over_random", keys) + list_parts("over_random_beyond_random_weights", beyond),
        "values_sharpen": list_parts("over_shuffled", states)
        + list_parts("over_shuffled_beyond_random_weights", states_beyond),
    }
    return [row | {"claim": name, "parts": some, "verdict": join(some)} for name, some in parts.items()]


@pytest.mark.parametrize(
    ("keys", "states", "beyond", "states_beyond", "answer"),
    [
        (Y, Y, Y, Y, "Yes"),
        (Y, Y, N, Y, "Partly"),
        (Y, N, Y, U, "Partly"),
        (Y, Y, Y, N, "Partly"),
        (Y, N, N, U, "No"),
        (Y, Y, N, N, "No"),
        (N, Y, U, Y, "No"),
        (Y, U, Y, Y, "Undecided: yes or partly"),
        (Y, Y, Y, U, "Undecided: yes or partly"),
        (Y, U, N, Y, "Undecided: partly or no"),
        (Y, Y, U, Y, "Undecided: yes or partly"),
        (U, Y, U, Y, "Undecided: yes, partly or no"),
        (U, U, U, U, "Undecided: yes, partly or no"),
        (Y, UNTESTED, Y, UNTESTED, "Not known"),
        (UNTESTED, UNTESTED, UNTESTED, UNTESTED, "Not known"),
    ],
)
def test_the_answer_follows_from_the_verdicts_on_claims(
    keys: str, states: str, beyond: str, states_beyond: str, answer: str
) -> None:
    claims = compared(keys, states, beyond=beyond, states_beyond=states_beyond)
    found = headlines_findings.judge_separation(STUDIED, claims, [])
    assert found.answer == answer
    assert (
        (answer == "Yes") == all(row["verdict"] == Y for row in claims) == all(one.is_worse for one in found.controls)
    )


def test_the_answer_does_not_read_intervals() -> None:
    """Holm's correction leaves undecided what an interval of 95 % alone would decide, and the page says no other."""
    for ends in ({"low": 0.1, "high": 0.2}, {"low": -0.2, "high": -0.1}, {"low": -0.1, "high": 0.1}):
        found = headlines_findings.judge_separation(STUDIED, compared(U, Y, beyond=Y, ends=ends), [])
        assert found.answer == "Undecided: yes or no"
        assert [control.why for control in found.controls] == ["undecided in AUC", "better", "better"]


def test_the_later_norm_is_the_mean_over_positions() -> None:
    """Of runs of positions of different lengths; the median of their means is no number of the model."""
    runs = ((0, 0, 1.0), (1, 1, 9.0), (2, 4, 5.0), (5, 9, 6.0))
    rows = [{"first_position": first, "last_position": last, "mean": mean} for first, last, mean in runs]
    said = "The mean norm is 1 at position 0 and 6 over the later positions."
    assert values_findings.describe_value_norm(rows) == said  # (9 + 3 · 5 + 5 · 6) / 9


@pytest.mark.parametrize(
    ("model", "name", "title"),
    [
        ("/home/me/models/gpt2", "/home/me/models/gpt2", "gpt2"),
        ("/home/me/m.Q4_1.gguf", "run of me", "m.Q4_1"),
        ("openai-community/gpt2", "openai-community/gpt2", "openai-community/gpt2"),
    ],
)
def test_a_title_names_no_folder_of_this_machine(model: str, name: str, title: str) -> None:
    assert settings_findings.name_model({"model": model, "model_name": name}) == title


def test_slopes_over_context_say_a_way_only_where_their_interval_does() -> None:
    """Means over the heads of a sequence first: of two heads and three sequences."""
    place = {"first_context": 16, "last_context": 512}
    rows = [
        {"kept": "number", "layer": 0, "head": head, "sequence": sequence, **place}
        | {"precision": -0.2 + 0.1 * head - 0.001 * sequence, "recall": 0.3 - 0.002 * sequence}
        | {"specificity": 0.01 * (sequence - 1)}
        for head in (0, 1)
        for sequence in range(3)
    ]
    assert contexts.describe_slopes(rows, 4) == (
        "At N = 4, each doubling of the context from 16 to 512 keys: Precision falls by 0.151 (0.149 to 0.153), "
        "Recall rises by 0.298 (0.293 to 0.303), Specificity neither falls nor rises for certain (−0.0248 to 0.0248)."
    )
    alone = contexts.describe_slopes([row for row in rows if row["sequence"] == 1], 4)
    assert "Precision changes by −0.151, Recall changes by 0.298" in alone
    assert contexts.describe_slopes([], 4) == ""
    heads = contexts.average_slopes(rows, "precision")
    assert [(row["head"], row["mean"]) for row in heads] == [(0, pytest.approx(-0.201)), (1, pytest.approx(-0.101))]
    assert contexts.describe_head_slopes(heads, "precision") == (
        "Precision changes by −0.201 (layer 0, head 0) to −0.101 (layer 0, head 1). "
        "The 95 % interval lies above 0 in 0 of 2 heads and below in 2."
    )
