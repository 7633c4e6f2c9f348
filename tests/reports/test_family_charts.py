"""Charts of families: claims in their words, and points that are not told apart by colour alone."""

import pytest

from dagster_project.analysis.claims.judging import CLAIMS
from reports.families import charts
from reports.families import figures as families
from reports.families.figures import tabulate_onsets

STATEMENTS = {claim.name: claim.statement for claim in CLAIMS}


def list_values(spec: dict, column: str) -> list[dict]:
    """The rows of the chart's data that have a column."""
    return next(rows for rows in spec["datasets"].values() if column in rows[0])


def test_the_map_of_verdicts_has_the_words_of_every_claim() -> None:
    rows = [
        {"claim": claim, "statement": words, "study": label, "member": member, "label": label, "verdict": verdict}
        for claim, words in STATEMENTS.items()
        for member, (label, verdict) in enumerate({"step0": "undecided", "step1": None}.items())
    ]
    spec = charts.verdicts([{**row, "p_holm": 0.5} for row in rows]).to_dict()
    written = {row["claim"]: row["words"] for row in list_values(spec, "words")}
    assert {claim: " ".join(lines) for claim, lines in written.items()} == STATEMENTS
    assert max(len(line) for lines in written.values() for line in lines) <= charts.CLAIM_WIDTH
    (text,) = (layer for layer in spec["layer"] if layer["encoding"].get("text", {}).get("field") == "words")
    assert text["encoding"]["y"]["axis"] is None
    lines = max(len(lines) for lines in written.values())
    assert spec["height"] >= len(written) * (lines * charts.CLAIM_LINE + charts.CLAIM_CELLS)


@pytest.mark.parametrize("ordered", [True, False])
def test_lines_and_points_beside_chance_differ_by_more_than_colour(*, ordered: bool) -> None:
    rows = [
        {"label": label, "member": member, "quantity": f"recall{end}", "value": 0.5, "value_low": 0.4, "value_high": 1}
        for member, label in enumerate(("one", "two"))
        for end in charts.BESIDE
    ]
    spec = charts.separation_and_chance(rows, "recall", "Recall", ordered=ordered).to_dict()
    channel = "strokeDash" if ordered else "shape"
    scales = [layer["encoding"][channel]["scale"] for layer in spec["layer"] if channel in layer["encoding"]]
    assert len(scales) >= len(charts.BESIDE)
    for scale in scales:
        assert scale["domain"] == list(charts.BESIDE.values())
        assert len({str(drawn) for drawn in scale["range"]}) == len(charts.BESIDE)


@pytest.mark.parametrize(("members", "axis", "title"), [(4, None, "Study"), (40, "context_length", "Context length")])
def test_the_axis_is_named_and_so_is_each_of_few_members(members: int, axis: str | None, title: str) -> None:
    x = charts.member_axis(
        [{"label": f"a{member}", "member": member, "axis": axis} for member in range(members)]
    ).to_dict()
    assert (x["title"], x["axis"]["labelOverlap"]) == (title, members > charts.MOST_LABELS)


def test_onsets_between_the_same_members_are_one_row_that_names_their_heads() -> None:
    onset = {"quantity": "sink_weight", "threshold": 0.3, "last_below": "a", "first_above": "b"}
    places = [(None, None), (1, None), (0, 2), (1, 0)]
    rows = [{**onset, "layer": layer, "head": head} for layer, head in places]
    listing = tabulate_onsets([*rows, {**onset, "first_above": "c", "layer": 3, "head": 1}])
    assert [row[-1] for row in listing.rows] == ["model, layer 1, 0.2, 1.0", "3.1"]


def test_claims_that_no_member_can_test_are_counted() -> None:
    assert families.describe_untested(set()) == ""
    assert families.describe_untested({"a"}) == "1 claim that no study can test is left out."
    assert families.describe_untested({"a", "b"}) == "2 claims that no study can test are left out."


def differ(quantity: str, difference: float, half: float) -> dict[str, object]:
    """A row of ``family_differences`` between two studies of 8 sequences."""
    ends = {"difference_low": difference - half, "difference_high": difference + half}
    return {"study": "b", "reference": "a", "quantity": quantity, "difference": difference, **ends}


TRENDS = [
    {"study": study, "label": label, "quantity": quantity, "value": value, "sequences": 8}
    for study, label, value in (("a", "step0", 0.25), ("b", "step9", 0.75))
    for quantity in families.NAMES
]


def test_differences_that_are_told_survive_the_correction_for_their_number() -> None:
    """An interval that barely excludes 0 is told alone, and not beside 17 others without a difference."""
    barely = differ("sink_weight", 1.1, 1.0)
    assert families.find_apart([barely], TRENDS) == [barely]
    others = [differ(quantity, 0.0, 1.0) for quantity in families.NAMES if quantity != "sink_weight"]
    assert families.find_apart([barely, *others], TRENDS) == []
    clear = differ("recall[4]", 5.0, 0.5)
    assert families.find_apart([barely, *others[:5], clear], TRENDS) == [clear]
    told = families.tell_differences([barely, *others[:5], clear], TRENDS, [])
    assert told[0] == "Recall at N = 4: 0.25 in step0, 0.75 in step9 (difference 5, 4.5 to 5.5)."
    assert told[1].startswith("Of 7 quantities of the model, 1 differs between step0 and step9")
    assert told[2].startswith("No claim of the paper is supported in one study and not")


def test_verdicts_that_differ_are_told_and_others_counted() -> None:
    verdicts = {
        "same": ("supported", "supported"),
        "open": ("undecided", "supported"),
        "turns": ("supported", "not supported"),
    }
    rows = [
        {"claim": claim, "statement": f"So {claim}", "label": label, "verdict": verdict}
        for claim, own in verdicts.items()
        for label, verdict in zip(("step0", "step9"), own, strict=True)
    ]
    assert families.tell_differences([], TRENDS, rows) == ["‘So turns’ is supported in step0, and not in step9."]


def test_the_largest_lines_are_named_where_their_names_have_room() -> None:
    ends = {"value_low": None, "value_high": None}
    rows = [
        {"member": member, "label": f"step{member}", "layer": 0, "head": head, "value": member * value, **ends}
        | {"appears": value > 0.3}
        for member in (0, 1)
        for head, value in enumerate((0.9, 0.89, 0.5, 0.2))
    ]
    spec = charts.traces(rows, "Sink", threshold=0.3).to_dict()
    assert '["0.0", "0.2"]' in str(spec["layer"]), "0.1 has no room, and 0.3 does not come to exceed the threshold"
    assert "'share': 0.3" in str(spec["datasets"])
