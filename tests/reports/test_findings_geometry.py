"""What sentences about single heads and about the example of Figure 1 say, from rows made by hand."""

import pytest

from reports.findings.numbers import Row
from reports.head_geometry import findings as geometry_findings
from reports.intuition import figures as intuition


def keys(*within: bool, selected: int) -> list[Row]:
    return [{"key": index, "selected": index <= selected, "within": inside} for index, inside in enumerate(within, 1)]


def test_the_example_counts_selected_and_left_out_keys_apart() -> None:
    text = intuition.describe_example(keys(True, False, True, True, False, selected=3), 0.1, 0.25)
    assert text.startswith("Of 5 keys, keys 1, 2 and 3 are selected.")
    assert "Within r_min = 0.1 lie keys 1 and 3, not key 2: Recall is 2/3." in text
    assert text.endswith("Within r_max = 0.25 lie also key 4: Precision is 3/4.")


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


@pytest.mark.parametrize(
    ("course", "told"),
    [
        ([0.9, 0.5, 0.2], "falls from 0.9 at N = 1 to 0.2 at N = 3."),
        ([0.1, 0.5, 0.2], "rises from 0.1 at N = 1 to 0.2 at N = 3, and is highest at N = 2 (0.5)."),
        ([0.5, 0.1, 0.52], "goes from 0.5 at N = 1 to 0.52 at N = 3, and is lowest at N = 2 (0.1)."),
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


def of_kv_head(effective: float | None, layer: int = 0, kv_head: int = 0) -> Row:
    """A row of ``principal_directions_by_head``."""
    shares = {"share_1": 0.4, "share_2": 0.2, "share_3": 0.15}
    if effective is None:
        shares = dict.fromkeys(shares)  # type: ignore[arg-type]
    row = {"layer": layer, "kv_head": kv_head, "status": "ok", "head_dim": 64, "effective_dimension": effective}
    return row | shares


def test_effective_dimensions_are_compared_over_heads() -> None:
    rows = [of_kv_head(2.0), of_kv_head(4.0, 0, 1), of_kv_head(8.0, 5), of_kv_head(None, 5, 1)]
    text = geometry_findings.describe_dimensions(rows)
    assert text.startswith(
        "Of 64 dimensions, the effective dimension of KV heads is 2 (layer 0, KV head 0) to 8 (layer 5, KV head 0); "
        "the median is 4,"
    )
    assert text.endswith("1 KV head whose value states have norm 0 has none.")
    mixed = geometry_findings.describe_dimensions([of_kv_head(2.0), of_kv_head(4.0, 1) | {"head_dim": 32}])
    assert mixed.startswith("Of 32 and 64 dimensions, ")
    assert "all value states but the sink’s have norm 0" in geometry_findings.describe_dimensions([of_kv_head(None)])
