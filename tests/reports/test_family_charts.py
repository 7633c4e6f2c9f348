"""Charts of families: claims in their words, and points that are not told apart by colour alone."""

import pyarrow as pa
import pytest

from dagster_project.analysis.claims.judging import CLAIMS
from reports.charts import families as charts
from reports.findings.families import describe_untested

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
    spec = charts.verdicts(pa.Table.from_pylist([{**row, "p_holm": 0.5} for row in rows])).to_dict()
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
    spec = charts.separation_and_chance(pa.Table.from_pylist(rows), "recall", "Recall", ordered=ordered).to_dict()
    channel = "strokeDash" if ordered else "shape"
    scales = [layer["encoding"][channel]["scale"] for layer in spec["layer"] if channel in layer["encoding"]]
    assert len(scales) >= len(charts.BESIDE)
    for scale in scales:
        assert scale["domain"] == list(charts.BESIDE.values())
        assert len({str(drawn) for drawn in scale["range"]}) == len(charts.BESIDE)


def test_claims_that_no_member_can_test_are_counted() -> None:
    assert describe_untested(set()) == ""
    assert describe_untested({"a"}) == "1 claim that no study can test is left out."
    assert describe_untested({"a", "b"}) == "2 claims that no study can test are left out."
