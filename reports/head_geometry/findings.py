"""Findings on the geometry of single heads: s_N with and without its largest parts, contributions, directions."""

from collections.abc import Sequence
from statistics import median

from reports.findings.numbers import (
    Row,
    count,
    describe_course,
    describe_range,
    drop_nulls,
    join_sentences,
    join_words,
    number,
    percent,
)

NORMS = {"norm_s": "the sum", "norm_s_without_sink": "without sink", "norm_s_without_last": "without last"}
"""Norms of the representative vector, as the legend names them."""

COSINES = {"cos_sink": "sink", "cos_last": "last token"}
"""Cosines of the representative vector, as the legend names them."""

SLIGHT = 0.001  # A norm that changes by less than this share of itself counts as the same
FAINT = 1e-6  # Contributions below this share of a head's largest are not drawn


def describe_examples(examples: Sequence[Row]) -> str:
    """How clearly the examples represent their labels (``label_examples``)."""
    margins = ["" if row["margin"] is None else f" (margin {number(row['margin'])})" for row in examples]
    parts = [
        f"{count(row['heads'], 'head')} labelled {row['label']}{margin}"
        for row, margin in zip(examples, margins, strict=True)
    ]
    return f"Shown is the clearest of {join_words(parts)}."


def describe_norms(curve: Sequence[Row]) -> str:
    """Contribution of sink and last token to the norm of s_N at the last N (``diagnostics_of_head``)."""
    last = max(curve, key=lambda row: row["n"])
    parts = [
        f"{_compare_norms(last[column], last['norm_s'])} without the {part}"
        for column, part in {"norm_s_without_last": "last token", "norm_s_without_sink": "sink"}.items()
        if last[column] is not None
    ]
    hidden = "A window hides the sink." if last["norm_s_without_sink"] is None else ""
    return join_sentences(
        f"At N = {last['n']:,} the norm of s_N is {number(last['norm_s'])}: {', '.join(parts)}.", hidden
    )


def _compare_norms(value: float, whole: float) -> str:
    if not whole or abs(value / whole - 1) < SLIGHT:
        return "the same"
    return f"{percent(abs(value / whole - 1))} {'less' if value < whole else 'more'}"


def describe_cosines(curve: Sequence[Row]) -> str:
    """Cosines of s_N with the value states of the last token and the sink against N (``diagnostics_of_head``)."""
    absence = {
        "cos_last": "the last token’s value state has norm 0",
        "cos_sink": "a window hides the sink, or its value state has norm 0",
    }
    names = {"cos_last": "cos(s_N, v_L)", "cos_sink": "cos(s_N, v₀)"}
    clauses = [
        f"{name} {describe_course(rows, column)}."
        if (rows := drop_nulls(curve, column))
        else f"No {name}: {absence[column]}."
        for column, name in names.items()
    ]
    return join_sentences(*clauses)


def describe_contributions(keys: Sequence[Row]) -> str:
    """Largest contributions to a head's output at the largest context and the smallest (``contributions_of_head``)."""
    of_query: dict[int, dict[str, Row]] = {}
    for row in sorted(keys, key=lambda row: (row["query"], row["mean_norm_y"])):
        of_query.setdefault(row["query"], {})[row["role"]] = row
    *smaller, query = of_query
    same = next((other for other in smaller if of_query[other].keys() == of_query[query].keys()), None)
    text = f"Contributions with {count(query + 1, 'token')} of context: {_list_contributions(of_query[query])}"
    if same is not None:
        text += f"; with {count(same + 1, 'token')}: {_list_contributions(of_query[same])}"
    return f"{text}.{' A window hides the sink.' if query and 'sink' not in of_query[query] else ''}"


_ROLES = {"last": "the last token", "sink": "the sink", "other": "the largest other key"}
"""Keys whose contributions are described, in this order."""


def _list_contributions(of_role: dict[str, Row]) -> str:
    return ", ".join(
        f"{name} {number(of_role[role]['mean_norm_y'])}" for role, name in _ROLES.items() if role in of_role
    )


def select_visible(keys: Sequence[Row]) -> list[Row]:
    """Select the contributions that a log axis can show together with the largest (``contributions_of_head``)."""
    largest = max(row["mean_norm_y"] for row in keys)
    return [row for row in keys if row["mean_norm_y"] > FAINT * largest]


def describe_hidden(keys: Sequence[Row]) -> str:
    """Number of contributions that are too small to be drawn (``contributions_of_head``); empty if none is."""
    hidden = len(keys) - len(select_visible(keys))
    left_out = (
        f"{count(hidden, 'contribution')} below a millionth of the largest {'is' if hidden == 1 else 'are'} left out"
    )
    return f"{left_out}, since the axis is logarithmic." if hidden else ""


def describe_directions(of_kv_head: Row) -> str:
    """Number of directions that the value states of a KV head use (``principal_directions_by_head``)."""
    if of_kv_head["effective_dimension"] is None:
        return "Its value states but the sink’s have norm 0."
    return (
        f"The first three directions hold {percent(sum_shares(of_kv_head))} of the squared length of its value "
        f"states, whose effective dimension is {number(of_kv_head['effective_dimension'])} of {of_kv_head['head_dim']}."
    )


def sum_shares(row: Row) -> float:
    """Share of squared length along the first three principal directions; rounding may give more than 1."""
    return min(1.0, float(sum(row[f"share_{index}"] for index in (1, 2, 3))))


def describe_dimensions(heads: Sequence[Row]) -> str:
    """Effective dimension over KV heads (``principal_directions_by_head``)."""
    rows = drop_nulls(heads, "effective_dimension")
    if not rows:
        return "No KV head has an effective dimension: all value states but the sink’s have norm 0."
    zero = len(heads) - len(rows)
    has = "has" if zero == 1 else "have"
    between = describe_range(
        rows, "effective_dimension", lambda row: f"layer {row['layer']}, KV head {row['kv_head']}", "KV head"
    )
    sizes = join_words([f"{size:,}" for size in sorted({row["head_dim"] for row in rows})])
    return join_sentences(
        f"Of {sizes} dimensions, the effective dimension of KV heads is {between}; the median is "
        f"{number(median(row['effective_dimension'] for row in rows))}, and the median share of the first three "
        f"directions is {percent(median(map(sum_shares, rows)))}.",
        f"{count(zero, 'KV head')} whose value states have norm 0 {has} none." if zero else "",
    )
