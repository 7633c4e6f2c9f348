"""Findings on the geometry of single heads: s_N with and without its largest parts, contributions, directions."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head, number, percent
from reports.findings.taxonomy import KINDS

NORMS = {
    "norm_s": "the sum",
    "norm_s_without_sink": "without sink",
    "norm_s_without_last": "without last",
}
"""Norms of the representative vector, as the legend names them."""

COSINES = {"cos_sink": "sink", "cos_last": "last token"}
"""Cosines of the representative vector, as the legend names them."""

LEVEL = 0.05
"""A cosine that stays within a range of this size counts as level."""

SLIGHT = 0.001
"""A norm that changes by less than this share of itself counts as the same."""

FAINT = 1e-6
"""Contributions below this share of a head's largest are not drawn."""


def name_example(head: Row) -> str:
    """Name the head that represents its label (``label_examples``)."""
    return f"{head['label']}: {name_head(head)}"


def describe_absent(examples: Sequence[Row]) -> str:
    """Labels that no head has (``label_examples``); empty if each occurs."""
    missing = [label for label in KINDS if label not in {row["label"] for row in examples}]
    return f"No head is labelled {' or '.join(missing)}, so none is shown." if missing else ""


def describe_examples(examples: Sequence[Row]) -> str:
    """How clearly the examples represent their labels (``label_examples``)."""
    parts = [f"{count(row['heads'], 'head')} labelled {row['label']}{_format_margin(row)}" for row in examples]
    return f"Shown is the clearest of {_join_parts(parts)}."


def _format_margin(head: Row) -> str:
    """Format the margin by which a head has its label; empty if there is none."""
    return "" if head["margin"] is None else f" (margin {number(head['margin'])})"


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
        f"At N = {last['n']:,} the norm of s_N is {number(last['norm_s'])}: {', '.join(parts)}.",
        hidden,
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
        f"{name} {_describe_course(rows, column)}."
        if (rows := drop_nulls(curve, column))
        else f"No {name}: {absence[column]}."
        for column, name in names.items()
    ]
    return join_sentences(*clauses)


def _describe_course(curve: Sequence[Row], column: str) -> str:
    """Describe a curve from the first N to the last, and an extremum in between if it is clear."""
    rows = sorted(curve, key=lambda row: row["n"])
    first, last = rows[0], rows[-1]
    low, high = min(rows, key=lambda row: row[column]), max(rows, key=lambda row: row[column])
    if len(rows) == 1:
        return f"is {_format_point(first, column)}, the only N"
    if high[column] - low[column] < LEVEL:
        least, most = number(low[column]), number(high[column])
        return f"stays at {least}" if least == most else f"stays between {least} and {most}"
    ends = sorted((first[column], last[column]))
    beyond = {"lowest": (low, ends[0] - low[column]), "highest": (high, high[column] - ends[1])}
    name, (row, excess) = max(beyond.items(), key=lambda item: item[1][1])
    between = f", {name} with {_format_point(row, column)}" if excess >= LEVEL else ""
    verb = "rises" if last[column] > first[column] else "falls"
    if abs(last[column] - first[column]) < LEVEL:
        verb = "goes"
    return f"{verb} from {_format_point(first, column)} to {_format_point(last, column)}{between}"


def _format_point(row: Row, column: str) -> str:
    return f"{number(row[column])} at N = {row['n']:,}"


def describe_contributions(keys: Sequence[Row]) -> str:
    """Largest contributions to a head's output, and their change with context (``contributions_of_head``)."""
    of_query = {query: _group_by_role(keys, query) for query in sorted({row["query"] for row in keys})}
    query, last = of_query.popitem()
    smaller = [query for query, of_role in of_query.items() if of_role.keys() == last.keys()]
    text = f"With {count(query + 1, 'token')} of context {_join_parts(_list_contributions(last, with_verb=True))}"
    if smaller:
        numbers = _join_parts(_list_contributions(of_query[smaller[0]], with_verb=False))
        text += f"; with {count(smaller[0] + 1, 'token')}: {numbers}"
    return f"{text}.{' A window hides the sink.' if query and 'sink' not in last else ''}"


_ROLES = {"last": "the last token", "sink": "the sink", "other": "the largest other key"}
"""Keys whose contributions are described, in this order."""


def _group_by_role(keys: Sequence[Row], query: int) -> dict[str, Row]:
    """Group the rows of one query by role, keeping the largest contribution of each."""
    rows = sorted((row for row in keys if row["query"] == query), key=lambda row: row["mean_norm_y"])
    return {row["role"]: row for row in rows}


def _list_contributions(of_role: dict[str, Row], *, with_verb: bool) -> list[str]:
    """List contributions in the order of the roles; the first with a verb, or numbers alone."""
    numbers = {name: number(of_role[role]["mean_norm_y"]) for role, name in _ROLES.items() if role in of_role}
    if not with_verb:
        return list(numbers.values())
    return [
        f"{name} contributes {value}" if index == 0 else f"{name} {value}"
        for index, (name, value) in enumerate(numbers.items())
    ]


def _join_parts(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def describe_similarity(keys: Sequence[Row]) -> str:
    """Cosines of the value states of keys with the last token's (``contributions_of_head``)."""
    cosines_of_others = [row["mean_cos_last"] for row in drop_nulls(keys, "mean_cos_last") if row["role"] != "last"]
    if not drop_nulls(keys, "mean_cos_last"):
        return "The last token’s value state has norm 0, so there is no cosine to colour by."
    if not cosines_of_others:
        return ""
    if len(cosines_of_others) == 1:
        return f"The cosine of the other key with v_L is {number(cosines_of_others[0])}."
    below = fmean(cosine < 0 for cosine in cosines_of_others)
    return (
        f"Cosines of other keys with v_L lie between {number(min(cosines_of_others))} and "
        f"{number(max(cosines_of_others))}, {percent(below) if below else 'none'} of them below 0."
    )


def select_visible(keys: Sequence[Row]) -> list[Row]:
    """Select the contributions that a log axis can show together with the largest (``contributions_of_head``)."""
    largest = max(row["mean_norm_y"] for row in keys)
    return [row for row in keys if row["mean_norm_y"] > FAINT * largest]


def describe_hidden(keys: Sequence[Row]) -> str:
    """Number of contributions that are too small to be drawn (``contributions_of_head``); empty if none is."""
    hidden = len(keys) - len(select_visible(keys))
    if not hidden:
        return ""
    zero = sum(not row["mean_norm_y"] for row in keys)
    which = "of 0" if zero == hidden else "below a millionth of the largest"
    return (
        f"{count(hidden, 'contribution')} {which} {'is' if hidden == 1 else 'are'} left out, since the axis is "
        "logarithmic."
    )


def describe_directions(of_kv_head: Row) -> str:
    """Number of directions that the value states of a KV head use (``principal_directions_by_head``)."""
    if of_kv_head["effective_dimension"] is None:
        return "Its value states but the sink’s have norm 0."
    return (
        f"The first three directions hold {percent(_sum_shares(of_kv_head))} of the squared length of its value "
        f"states, whose effective dimension is {number(of_kv_head['effective_dimension'])} of {of_kv_head['head_dim']}."
    )


def _sum_shares(row: Row) -> float:
    """Share of squared length along the first three principal directions; rounding may give more than 1."""
    return min(1.0, float(sum(row[f"share_{index}"] for index in (1, 2, 3))))


def compute_typical_length(of_kv_head: Row) -> float:
    """Root mean square length of a unit value state within the first three principal directions."""
    return sqrt(_sum_shares(of_kv_head))


def select_heaviest(points: Sequence[Row], n: int) -> list[Row]:
    """The ``n`` keys with the largest mean weight, or as many as there are (``directions_of_head``)."""
    return [row for row in drop_nulls(points, "selected_rank") if row["selected_rank"] <= n]


def describe_closeness(points: Sequence[Row], n: int) -> str:
    """Whether the heaviest keys are closer together than all keys (``directions_of_head``); empty for fewer than two.

    Compares the mean inner product of two different keys, which does not depend on how many there are. They lie about
    as close if the difference is below two standard errors of the same number of keys chosen at random.
    """
    chosen = [index for index, row in enumerate(points) if row["selected_rank"] and row["selected_rank"] <= n]
    if len(chosen) < 2 or len(chosen) == len(points):
        return ""
    products = _compute_products(points)
    of_heavy, of_all = (
        float(_select_pairs(products[np.ix_(chosen, chosen)]).mean()),
        float(_select_pairs(products).mean()),
    )
    within = abs(of_heavy - of_all) < 2 * _compute_chance(products, len(chosen))
    closer = "about as close together as" if within else "closer together than"
    if not within and of_heavy < of_all:
        closer = "less close together than"
    return (
        f"In these directions, the {len(chosen)} keys of the largest weight lie {closer} all keys shown: the mean "
        f"inner product of two of them is {number(of_heavy)}, of any two {number(of_all)}"
        f"{', a difference that may be due to chance' if within else ''}."
    )


def _compute_products(points: Sequence[Row]) -> NDArray[np.float64]:
    """Inner products of the points with each other, (point, point)."""
    vectors = np.array([[row[axis] for axis in "xyz"] for row in points], dtype=np.float64)
    products: NDArray[np.float64] = vectors @ vectors.T
    return products


def _select_pairs(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inner product of every two different points."""
    pairs: NDArray[np.float64] = products[np.triu_indices(len(products), k=1)]
    return pairs


def _compute_chance(products: NDArray[np.float64], chosen: int) -> float:
    """Standard deviation of the mean over the pairs of ``chosen`` points, two or more, chosen at random.

    Two pairs may be the same, share one point, or share none; each case is weighted by its probability.
    """
    every = len(products)
    off = products - _select_pairs(products).mean()
    np.fill_diagonal(off, 0)
    same = (off**2).sum() / 2
    sharing = (off.sum(axis=1) ** 2).sum() - 2 * same  # pairs that share none sum to the negative of the others
    two = chosen * (chosen - 1) / (every * (every - 1))
    three = two * (chosen - 2) / (every - 2)
    four = three * (chosen - 3) / max(every - 3, 1)
    variance = (two - four) * same + (three - four) * sharing
    return sqrt(max(float(variance), 0)) / (chosen * (chosen - 1) / 2)


def describe_dimensions(heads: Sequence[Row]) -> str:
    """Effective dimension over KV heads and over layers (``principal_directions_by_head``)."""
    rows = drop_nulls(heads, "effective_dimension")
    if not rows:
        return "No KV head has an effective dimension: all value states but the sink’s have norm 0."
    zero = len(heads) - len(rows)
    has = "has" if zero == 1 else "have"
    none = f"{count(zero, 'KV head')} whose value states have norm 0 {has} none." if zero else ""
    low, high = (end(rows, key=lambda row: row["effective_dimension"]) for end in (min, max))
    size = " to ".join(str(size) for size in sorted({row["head_dim"] for row in (low, high)}))
    if len(rows) == 1:
        return join_sentences(
            f"The effective dimension of the only KV head is {_format_dimension(low)} of {size}.", none
        )
    return join_sentences(
        f"Over KV heads the effective dimension ranges from {_format_dimension(low)} to "
        f"{_format_dimension(high)} of {size}; the "
        f"median is {number(median(row['effective_dimension'] for row in rows))}, and the median share of the first "
        f"three directions is {percent(median(map(_sum_shares, rows)))}.",
        _describe_layers(rows),
        none,
    )


def _format_dimension(row: Row) -> str:
    return f"{number(row['effective_dimension'])} (layer {row['layer']}, KV head {row['kv_head']})"


def _describe_layers(rows: Sequence[Row]) -> str:
    """Compare the means of the first and the last layer; empty for one layer."""
    of_layer: dict[int, list[float]] = {}
    for row in rows:
        of_layer.setdefault(row["layer"], []).append(row["effective_dimension"])
    first, last = min(of_layer), max(of_layer)
    if first == last:
        return ""
    means = {layer: fmean(values) for layer, values in of_layer.items()}
    low, high = min(means, key=lambda layer: means[layer]), max(means, key=lambda layer: means[layer])
    return (
        f"The mean of a layer is smallest in layer {low}, {number(means[low])}, and largest in layer {high}, "
        f"{number(means[high])}; it is {number(means[first])} in the first and {number(means[last])} in the last."
    )
