"""What sentences about single heads and about the example of Figure 1 say, from rows made by hand."""

import re

import pytest

from reports.findings.numbers import Row
from reports.head_geometry import findings as geometry_findings
from reports.intuition import findings as intuition_findings
from reports.kinds import findings as taxonomy_findings


def keys(*within: bool, selected: int) -> list[Row]:
    return [{"key": index, "selected": index <= selected, "within": inside} for index, inside in enumerate(within, 1)]


def test_the_example_counts_selected_and_left_out_keys_apart() -> None:
    text = intuition_findings.describe_example(keys(True, False, True, True, False, selected=3), 0.1, 0.25)
    assert text.startswith("Of 5 keys, keys 1, 2 and 3 are selected.")
    assert "Within r_min = 0.1 lie keys 1 and 3, not key 2: Recall is 2/3." in text
    assert text.endswith("Within r_max = 0.25 lie also key 4: Precision is 3/4.")


def example(label: str, **changed: object) -> Row:
    row = {"label": label, "layer": 3, "head": 5, "kv_head": 1, "margin": 0.25, "agreement": 1.0}
    return row | {"heads": 12} | changed


def test_labels_that_no_head_has_are_told() -> None:
    assert geometry_findings.describe_absent([example(label) for label in taxonomy_findings.LABELS]) == ""
    assert (
        geometry_findings.describe_absent([example("Mixer")])
        == "No head is labelled Retriever or Reset, so none is shown."
    )
    assert geometry_findings.name_example(example("Mixer")) == "Mixer: layer 3, head 5"


def test_examples_that_meet_no_rule_are_told() -> None:
    told = geometry_findings.describe_examples([example("Mixer"), example("Other", margin=None, heads=1)])
    assert told == "Shown is the clearest of 12 heads labelled Mixer (margin 0.25) and 1 head labelled Other."


def at(n: int, **changed: float | None) -> Row:
    """A row of ``diagnostics_of_head``."""
    norms = {"norm_s": 2.0, "norm_s_without_sink": 1.5, "norm_s_without_last": 0.5}
    return {"n": n, "sequences": 4, **norms, "cos_sink": 0.8, "cos_last": 0.3} | changed


def test_norms_are_those_of_the_last_n() -> None:
    text = geometry_findings.describe_norms([at(9), at(1, norm_s=7.0)])
    assert text == (
        "At N = 9 the norm of s_N is 2: 75\u00a0% less without the last token, 25\u00a0% less without the sink."
    )
    more = geometry_findings.describe_norms([at(9, norm_s_without_sink=3.0, norm_s_without_last=2.0001)])
    assert more.endswith(": the same without the last token, 50\u00a0% more without the sink.")


def test_norms_of_a_hidden_sink_and_of_nothing() -> None:
    hidden = geometry_findings.describe_norms([at(9, norm_s_without_sink=None)])
    assert hidden.endswith("without the last token. A window hides the sink.")
    assert "%" not in geometry_findings.describe_norms(
        [at(9, norm_s=0.0, norm_s_without_last=0.0, norm_s_without_sink=0.0)]
    )


@pytest.mark.parametrize(
    ("course", "told"),
    [
        ([0.9, 0.5, 0.2], "falls from 0.9 at N = 1 to 0.2 at N = 3."),
        ([0.1, 0.5, 0.2], "rises from 0.1 at N = 1 to 0.2 at N = 3, highest with 0.5 at N = 2."),
        ([0.5, 0.1, 0.52], "goes from 0.5 at N = 1 to 0.52 at N = 3, lowest with 0.1 at N = 2."),
        ([0.5, 0.52, 0.51], "stays between 0.5 and 0.52."),
        ([0.5], "is 0.5 at N = 1, the only N."),
    ],
)
def test_the_course_of_a_cosine(course: list[float], told: str) -> None:
    text = geometry_findings.describe_cosines(
        [at(n, cos_last=cosine, cos_sink=None) for n, cosine in enumerate(course, 1)]
    )
    assert text.startswith(f"cos(s_N, v_L) {told}")
    assert text.endswith("No cos(s_N, v₀): a window hides the sink, or its value state has norm 0.")


def key(role: str, norm: float, *, query: int = 15, cosine: float | None = 0.5, position: int = 3) -> Row:
    """A row of ``contributions_of_head``."""
    of_key = {"query": query, "position": position, "role": role, "mean_norm_y": norm}
    return of_key | {"mean_cos_last": cosine, "mean_cos_sink": None}


CONTEXT = [key("sink", 0.25), key("other", 0.5), key("other", 0.125), key("last", 2.0, cosine=1.0)]


def test_contributions_are_told_by_role_and_context() -> None:
    told = "Contributions with 16 tokens of context: the last token 2, the sink 0.25, the largest other key 0.5"
    assert geometry_findings.describe_contributions(CONTEXT) == f"{told}."
    smaller = [row | {"query": 7, "mean_norm_y": 4 * row["mean_norm_y"]} for row in CONTEXT]
    assert geometry_findings.describe_contributions([*CONTEXT, *smaller]) == (
        f"{told}; with 8 tokens: the last token 8, the sink 1, the largest other key 2."
    )
    assert geometry_findings.describe_contributions([*CONTEXT, key("last", 1.0, query=0)]) == f"{told}."


def test_a_hidden_sink_contributes_nothing_and_is_told() -> None:
    text = geometry_findings.describe_contributions([row for row in CONTEXT if row["role"] != "sink"])
    assert text.endswith("the last token 2, the largest other key 0.5. A window hides the sink.")


def test_contributions_that_are_not_drawn_are_counted() -> None:
    assert geometry_findings.describe_hidden(CONTEXT) == ""
    assert geometry_findings.select_visible(CONTEXT) == CONTEXT
    zero = [*CONTEXT, key("other", 0.0), key("other", 0.0)]
    assert "2 contributions below a millionth of the largest are left out" in geometry_findings.describe_hidden(zero)
    assert "1 contribution below a millionth of the largest is left out" in geometry_findings.describe_hidden(
        [*CONTEXT, key("other", 1e-7)]
    )
    assert geometry_findings.select_visible([*zero, key("other", 1e-7)]) == CONTEXT
    assert geometry_findings.select_visible([key("last", 0.0)]) == []


def of_kv_head(effective: float | None, layer: int = 0, kv_head: int = 0) -> Row:
    """A row of ``principal_directions_by_head``."""
    shares = {"share_1": 0.4, "share_2": 0.2, "share_3": 0.15}
    if effective is None:
        shares = dict.fromkeys(shares)  # type: ignore[arg-type]
    row = {"layer": layer, "kv_head": kv_head, "status": "ok", "head_dim": 64, "effective_dimension": effective}
    return row | shares


def test_directions_of_a_head() -> None:
    text = geometry_findings.describe_directions(of_kv_head(4.5))
    assert "The first three directions hold 75\u00a0% of the squared length" in text
    assert text.endswith("effective dimension is 4.5 of 64.")
    assert geometry_findings.compute_typical_length(of_kv_head(4.5)) == pytest.approx(0.75**0.5)
    assert "norm 0" in geometry_findings.describe_directions(of_kv_head(None))


def point(rank: int | None, x: float, y: float) -> Row:
    """A row of ``directions_of_head``."""
    return {"position": rank, "x": x, "y": y, "z": 0.0, "mean_weight": None, "role": "other", "selected_rank": rank}


def test_the_heaviest_keys_are_those_of_the_first_ranks() -> None:
    points = [point(3, 0.0, 1.0), point(1, 1.0, 0.0), point(None, 0.0, 1.0), point(2, -1.0, 0.0)]
    assert geometry_findings.select_heaviest(points, 2) == [points[1], points[3]]
    assert geometry_findings.select_heaviest(points, 9) == [points[0], points[1], points[3]]


def test_effective_dimensions_are_compared_over_heads() -> None:
    rows = [of_kv_head(2.0), of_kv_head(4.0, 0, 1), of_kv_head(8.0, 5), of_kv_head(None, 5, 1)]
    text = geometry_findings.describe_dimensions(rows)
    assert text.startswith(
        "Of 64 dimensions, the effective dimension of KV heads is 2 (layer 0, KV head 0) to 8 (layer 5, KV head 0); "
        "the median is 4,"
    )
    assert text.endswith("1 KV head whose value states have norm 0 has none.")
    assert " is 2 (layer 0, KV head 0); " in geometry_findings.describe_dimensions([of_kv_head(2.0)])
    assert "KV head 0, and 1 other KV head); " in geometry_findings.describe_dimensions([of_kv_head(2.0)] * 2)
    mixed = geometry_findings.describe_dimensions([of_kv_head(2.0), of_kv_head(4.0, 1) | {"head_dim": 32}])
    assert mixed.startswith("Of 32 and 64 dimensions, ")
    assert "all value states but the sink’s have norm 0" in geometry_findings.describe_dimensions([of_kv_head(None)])


def test_no_sentence_shows_a_missing_number() -> None:
    texts = [
        geometry_findings.describe_norms([at(1, norm_s_without_sink=None)]),
        geometry_findings.describe_cosines([at(1, cos_sink=None, cos_last=None)]),
        geometry_findings.describe_dimensions([of_kv_head(None), of_kv_head(1.0)]),
    ]
    for text in texts:
        assert not {"None", "nan"} & set(re.findall(r"\w+", text)), text
