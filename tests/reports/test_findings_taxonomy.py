"""What is said of the sink effect, the kinds of heads and context sizes, from rows made by hand."""

import pytest

from reports.contexts import figures as contexts
from reports.findings.numbers import Row
from reports.kinds import figures as kinds
from reports.kinds import labels as kind_labels
from reports.kinds.labels import find_halfway
from reports.sink import figures as sink_figures


def effect(n: int, correlation: float | None, *, spread: float | None = 0.1, heads: int = 100) -> Row:
    """A row of ``sink_effect``, its interval ``spread`` to either side."""
    low = high = None
    if correlation is not None and spread is not None:
        low, high = correlation - spread, correlation + spread
    row = {"n": n, "heads": heads, "kv_heads": heads, "sequences": 4, "correlation": correlation}
    return row | {"correlation_low": low, "correlation_high": high}


EFFECT = [effect(1, None), effect(2, 0.4), effect(3, 0.6), effect(4, 0.05), effect(5, -0.3)]


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        (EFFECT, "0.6 (0.5 to 0.7) at N = 3, where the paper finds its peak, and −0.3 (−0.4 to −0.2) at N = 5."),
        ([effect(2, 0.4), effect(3, None)], "0.4 (0.3 to 0.5) at N = 2."),
    ],
)
def test_the_correlation_is_told_where_the_paper_has_its_peak(curve: list[Row], told: str) -> None:
    assert sink_figures.describe_sink_effect(curve) == (
        f"Over all 100 heads, the correlation of mean Recall and ρ₀ is {told}"
    )


@pytest.mark.parametrize(
    ("heads", "told"),
    [
        (0, "No head has a ρ₀: a sliding window hides the sink, or its value state or all others have norm 0."),
        (1, "needs 3 heads or more; 1 head has a ρ₀."),
        (2, "needs 3 heads or more; 2 heads have a ρ₀."),
        (3, "is the same in all heads at every N"),
    ],
)
def test_why_there_is_no_correlation(heads: int, told: str) -> None:
    assert told in sink_figures.explain_no_sink_effect([effect(n, None, heads=heads) for n in (1, 2)])


def head(label: str, layer: int = 0, **changed: object) -> Row:
    """A row of ``head_taxonomy``."""
    row = {"layer": layer, "head": 0, "label": label, "nearest": label, "single_key": False, "margin": 0.2}
    return row | {"agreement": 1.0, "other_share": 0.0} | changed


def test_kinds_are_counted_with_those_that_meet_no_rule() -> None:
    heads = [head("Retriever"), head("Reset"), head("Reset", agreement=0.25, other_share=0.5)]
    text = kind_labels.describe_kinds([*heads, head("Other", nearest="Mixer", other_share=1.0)])
    assert text.startswith(
        "Of 4 heads: 1 Retriever, no Mixer, 2 Reset heads. 1 head meets no rule (1 nearest to Mixer)."
    )
    assert "On average 81.2\u00a0% of the sequences give a head its label" in text
    assert "37.5\u00a0% of sequences and heads meet no rule" in text
    assert "Every head meets a rule." in kind_labels.describe_kinds(heads)


def threshold(name: str, below: int, above: int, *others: float) -> Row:
    meaning = {"threshold": name, "meaning": f"what {name} decides", "value": 0.5}
    least, most = others or (0.5, 0.5)
    changed = {"changed_below": below, "changed_above": above, "heads": 12}
    return meaning | changed | {"other_least": least, "other_most": most}


def test_the_threshold_that_matters_most_is_named() -> None:
    rows = [threshold("last_high", 1, 0, 0.2, 0.5), threshold("last_weak", 0, 3, 0.4, 0.8), threshold("broad", 0, 0)]
    assert kind_labels.describe_sensitivity(rows) == (
        "The labels depend most on last_weak: lowering it by 10 % changes 0, and raising it by 10 % changes 3 of "
        "12 labels. "
        "1 of 3 thresholds changes none. If one threshold is halved, doubled or changed by 10 %, between 20\u00a0% "
        "(last_high) and 80\u00a0% (last_weak) of all sequences and heads meet no rule."
    )
    assert kind_labels.describe_sensitivity(rows[2:]).startswith(
        "No threshold changes a label of 12 heads when it moves by 10 %. If one threshold is halved"
    )


def curve(label: str, metric: str, means: list[float]) -> list[Row]:
    """Rows of ``curves_by_label`` at N = 1, 2, 4, 8 ..."""
    return [
        {"label": label, "metric": metric, "n": 2**index, "heads": 3, "mean": mean, "p10": mean, "p90": mean}
        for index, mean in enumerate(means)
    ]


CURVES = [
    *curve("Retriever", "precision", [0.9, 0.4, 0.2, 0.1, 1]),
    *curve("Retriever", "recall", [1, 0.9, 0.8, 0.7, 1]),
    *curve("Reset", "precision", [0.9, 0.3, 0.35, 0.5, 1]),
    *curve("Reset", "recall", [1, 0.5, 0.4, 0.3, 1]),
]


def test_kinds_are_compared_halfway_where_not_all_is_selected() -> None:
    assert find_halfway(CURVES) == 8
    text = kind_labels.describe_kind_curves(CURVES, "precision", "recall")
    assert text == (
        "At N = 8, of at most 16, Precision is 0.1 in Retrievers, 0.5 in Reset heads; Recall is 0.7 in Retrievers, 0.3 "
        "in Reset heads. Precision of Reset heads falls from 0.9 at N = 1 to 0.5 at N = 8, and is lowest at N = 2 "
        "(0.3). Recall of Reset heads falls from 1 at N = 1 to 0.3 at N = 8."
    )


def point(query: int, n: int, mean: float, half: float | None = 0.01) -> Row:
    row = {"query": query, "n_keys": query + 1, "metric": "recall", "n": n, "heads": 4, "mean": mean}
    return row | {"low": None if half is None else mean - half, "high": None if half is None else mean + half}


def test_contexts_are_compared_where_both_have_the_n() -> None:
    small = [point(7, 1, 1.0), point(7, 2, 0.5), point(7, 4, 0.4)]
    large = [point(63, 1, 1.0), point(63, 2, 0.2), point(63, 4, 0.45), point(63, 16, 0.1)]
    rows = [*large, *small, point(31, 2, 0.9)]
    assert contexts.describe_metric(rows, "recall") == (
        "From 8 to 64 tokens Recall changes most at N = 2, from 0.5 (0.49 to 0.51) to 0.2 (0.19 to 0.21)."
    )
    assert contexts.describe_metric([small[0], large[0]], "recall").startswith(
        "Recall has no N to compare between 8 and 64 tokens."
    )


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


def test_kinds_that_shift_are_told_with_the_heads_that_change() -> None:
    shares = [
        {"query": query, "label": label, "heads": round(12 * share), "share": share}
        for query, found in ((7, (0.25, 0.5, 0.25, 0)), (15, (0.5, 0.5, 0, 0)), (63, (0.25, 0.25, 0.5, 0)))
        for label, share in zip(kind_labels.LABELS, found, strict=True)
    ]
    changes = [{"query": 7, "next_query": 15, "changed": 3, "heads": 12}]
    changes += [{"query": 15, "next_query": 63, "changed": 0, "heads": 12}]
    assert contexts.describe_labels(shares, changes) == (
        "From 8 to 64 tokens: Mixer from 6 to 3 heads, Reset from 3 to 6 heads. "
        "Heads that change their kind, of 12: 3 from 8 to 16, 0 from 16 to 64 tokens."
    )


def contrast(label: str, quantity: str, value: float, spread: float | None = 0.1) -> Row:
    """A row of ``measures_by_label``, its interval ``spread`` to either side."""
    ends = {"value_low": None, "value_high": None}
    ends |= {} if spread is None else {"value_low": value - spread, "value_high": value + spread}
    return {"label": label, "quantity": quantity, "heads": 3, "strongest": "1.0, 0.1", "value": value, **ends}


SEEN = {"layers": 0, "all_layers": 18, "fewest": None, "most": None, "queries": 1023}
"""A row of ``queries_that_see_the_sink`` of a model without windows."""

CONTRASTS = [contrast("sink", "recall", -0.3), contrast("previous", "recall", 0.05), contrast("sink", "reset", 0.5)]


def test_heads_are_counted_by_what_they_look_at_and_compared_with_the_others() -> None:
    told = kinds.describe_patterns(CONTRASTS, SEEN)
    assert told == (
        "Heads by what they look at: sink 3, previous 3; a head may have several labels, or none. The 95 % interval of "
        "the difference in Recall to all other heads excludes 0 for sink \u22120.3 (\u22120.4 to \u22120.2)."
    )
    unsure = [contrast("sink", "recall", -0.3, spread=None)]
    assert kinds.describe_patterns(CONTRASTS[::-1], SEEN) == told
    assert kinds.describe_patterns(unsure, SEEN).endswith("to all other heads excludes 0 for none.")


def test_the_table_of_labels_has_the_difference_in_recall_and_none_of_kinds_without_a_head() -> None:
    listing = kinds.tabulate_patterns([*CONTRASTS, contrast("sink", "mixer", 0.0, spread=0.0)])
    place = listing.headings.index
    (sink,) = (row for row in listing.rows if row[0] == "sink")
    assert (sink[place("Recall")], sink[place("Mixer")]) == ("−0.3 (−0.4 to −0.2)", "–")
    assert sink[place("Reset")] == "0.5 (0.4 to 0.6)"


def test_it_is_told_on_how_many_queries_a_sink_that_windows_hide_is_measured() -> None:
    hidden = SEEN | {"layers": 15, "fewest": 511, "most": 511}
    assert kinds.describe_patterns(CONTRASTS, hidden).endswith(
        " In 15 of 18 layers a window hides position 0: weights on the sink are means over the 511 of 1,023 queries "
        "that see it."
    )
    assert "over the 31 to 511 of 1,023" in kinds.describe_hidden_sinks(hidden | {"fewest": 31})
