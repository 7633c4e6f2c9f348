"""Findings on the kinds of heads: their numbers, layers and margins, and how they separate."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from statistics import fmean

from reports.findings.listings import Listing, tabulate
from reports.findings.numbers import NAMES, Row, count, describe_course, drop_nulls, join_sentences, number, percent

KINDS = ("Retriever", "Mixer", "Reset")
"""The kinds of heads, in the order of every chart and table."""

OTHER = "Other"
"""The label of a head that meets no rule."""

LABELS = (*KINDS, OTHER)
"""Every label, in the order of every chart and table."""

LETTERS = {"Retriever": "T", "Mixer": "M", "Reset": "R", OTHER: "O"}
"""Letter of each label, used if there is no room for its name."""

EXPLAINED = "T: Retriever, M: Mixer, R: Reset, O: Other, which meets no rule"
"""The letters, for captions."""

_NOUNS = {
    "Retriever": ("Retriever", "Retrievers"),
    "Mixer": ("Mixer", "Mixers"),
    "Reset": ("Reset head", "Reset heads"),
    OTHER: ("Other head", "Other heads"),
}
"""Nouns for one head and for several heads of a label."""


def describe_kinds(heads: Sequence[Row]) -> str:
    """Number of heads of each kind, and the agreement of sequences (``head_taxonomy``)."""
    numbers = Counter(row["label"] for row in heads)
    counts = [count(numbers[label], *_NOUNS[label]) if numbers[label] else f"no {_NOUNS[label][0]}" for label in KINDS]
    agreement, none = (percent(fmean(row[name] for row in heads)) for name in ("agreement", "other_share"))
    return join_sentences(
        f"Of {count(len(heads), 'head')}: {', '.join(counts)}.",
        _describe_others([row for row in heads if row["label"] == OTHER]),
        f"On average {agreement} of the sequences give a head its label; {none} of sequences and heads meet no rule.",
    )


def _describe_others(heads: Sequence[Row]) -> str:
    """Describe the heads that meet no rule: their number, nearest kinds, and how many have a single key."""
    if not heads:
        return "Every head meets a rule."
    nearest = Counter(row["nearest"] for row in heads)
    near = [f"{nearest[kind]:,} nearest to {kind}" for kind in KINDS if nearest[kind]]
    single = sum(row["single_key"] for row in heads)
    return join_sentences(
        f"{count(len(heads), 'head')} {'meets' if len(heads) == 1 else 'meet'} no rule"
        + (f" ({', '.join(near)})." if near else "."),
        f"In {single:,} of them one key that is neither the sink nor the last token contributes nearly all."
        if single
        else "",
    )


def describe_depths(heads: Sequence[Row]) -> str:
    """Mean layer of each kind (``head_taxonomy``)."""
    layers = {label: [row["layer"] for row in heads if row["label"] == label] for label in KINDS}
    means = {label: fmean(places) for label, places in layers.items() if places}
    if len({row["layer"] for row in heads}) == 1:
        return "With one layer there is no depth to compare."
    if not means:
        return "No head is of a kind, so there is no order to compare."
    return f"Mean layer: {', '.join(f'{label} {number(mean)}' for label, mean in means.items())}."


def describe_planes(heads: Sequence[Row]) -> str:
    """Cosine of the heads of each kind with the last token (``head_taxonomy``)."""
    rows = drop_nulls(heads, "cos_last_level")
    clauses = []
    for label in LABELS:
        own = [row for row in rows if row["label"] == label]
        if own:
            level, change = (fmean(row[name] for row in own) for name in ("cos_last_level", "cos_last_change"))
            moving = f"{'rising' if change > 0 else 'falling'} by {number(abs(change))}" if change else "not changing"
            clauses.append(f"{number(level)}, {moving}, in {count(len(own), *_NOUNS[label])}")
    hidden = len(heads) - len(rows)
    return join_sentences(
        f"cos(s, v_L) lies on average at {'; at '.join(clauses)}.",
        f"{count(hidden, 'head')} without such a cosine {'is' if hidden == 1 else 'are'} not drawn." if hidden else "",
    )


def describe_sensitivity(thresholds: Sequence[Row]) -> str:
    """The threshold on which the labels depend most, and the range of Other (``taxonomy_thresholds``)."""
    most = max(thresholds, key=_count_changed)
    if not _count_changed(most):
        text = f"No threshold changes a label of {count(most['heads'], 'head')} when it moves by 10 %."
        return f"{text} {describe_other_range(thresholds)}"
    still = sum(not _count_changed(row) for row in thresholds)
    return join_sentences(
        f"The labels depend most on {most['threshold']}: lowering it by 10 % changes {most['changed_below']:,}, and "
        f"raising it by 10 % changes {most['changed_above']:,} of {count(most['heads'], 'label')}.",
        f"{still} of {count(len(thresholds), 'threshold')} {'changes' if still == 1 else 'change'} none."
        if still
        else "",
        describe_other_range(thresholds),
    )


def describe_other_range(
    thresholds: Sequence[Row], change: str = "If one threshold is halved, doubled or changed by 10 %"
) -> str:
    """Describe how many sequences and heads meet no rule, as one threshold is changed."""
    low = min(thresholds, key=lambda row: row["other_least"])
    high = max(thresholds, key=lambda row: row["other_most"])
    first = "" if low["threshold"] == high["threshold"] else f" ({low['threshold']})"
    return (
        f"{change}, between {percent(low['other_least'])}{first} and {percent(high['other_most'])} "
        f"({high['threshold']}) of all sequences and heads meet no rule."
    )


def _count_changed(row: Row) -> int:
    return max(int(row["changed_below"]), int(row["changed_above"]))


def find_halfway(curves: Sequence[Row]) -> int:
    """The largest N of the grid up to half of the last: beyond it both measures tend to 1 in every head."""
    ns: list[int] = sorted({row["n"] for row in curves})
    return max((n for n in ns if 2 * n <= ns[-1]), default=ns[0])


def describe_kind_curves(curves: Sequence[Row], *metrics: str) -> str:
    """Metrics of the kinds halfway, and where they are lowest in Reset heads (``curves_by_label``)."""
    each = "; ".join(_describe_each(curves, metric) for metric in metrics)
    resets = (_describe_resets(curves, metric) for metric in metrics)
    halfway = f"At N = {find_halfway(curves):,}, of at most {max(row['n'] for row in curves):,},"
    return join_sentences(f"{halfway} {each}.", *resets)


def _describe_each(curves: Sequence[Row], metric: str) -> str:
    place = (metric, find_halfway(curves))
    means = {row["label"]: row["mean"] for row in curves if (row["metric"], row["n"]) == place}
    text = ", ".join(f"{number(means[label])} in {_NOUNS[label][1]}" for label in LABELS if label in means)
    return f"{NAMES[metric]} is {text}"


def _describe_resets(curves: Sequence[Row], metric: str) -> str:
    """Describe the course of a metric of Reset heads up to halfway, beyond which it rises to 1 in every head."""
    until = find_halfway(curves)
    points = [row for row in curves if (row["metric"], row["label"]) == (metric, "Reset") and row["n"] <= until]
    return f"{NAMES[metric]} of Reset heads {describe_course(points, 'mean')}." if len(points) > 2 else ""


def tabulate_sensitivity(rows: Iterable[Row]) -> Listing:
    """Number of labels that depend on each threshold of the taxonomy (``taxonomy_thresholds``)."""
    return tabulate(
        rows,
        {
            "Threshold": itemgetter("threshold"),
            "What it decides": itemgetter("meaning"),
            "Value": lambda row: number(row["value"]),
            "Labels changed at −10\u00a0%": lambda row: f"{row['changed_below']:,}\u00a0of\u00a0{row['heads']:,}",
            "Labels changed at +10\u00a0%": lambda row: f"{row['changed_above']:,}\u00a0of\u00a0{row['heads']:,}",
        },
    )
