"""The explorer: a chart in which the reader chooses a head, which is shown first and why, and what cells are blank."""

from collections.abc import Sequence

from reports.chance.figures import FLOOR
from reports.explorer import charts
from reports.figures import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source
from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head
from reports.kinds import findings as taxonomy_findings
from reports.kinds.findings import OTHER
from reports.sink.figures import NO_RHO_0

WORTH_SEEING = ("induction", "previous", "duplicate")
"""Labels of heads that look at one place in the text, the one that is best shown first."""

CLEAR = 0.5
"""Least share of a head's weight on the keys of its label, at one query, of a clear example."""


def describe_explorer(heads: Sequence[Row], n: int, first: Row, example: Row | None) -> str:
    """Which head is shown first and why, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    why = (
        f"of those labelled {example['label']} that do not rest on the sink, the strongest with a clear example"
        if example
        else "the one that is most clearly of its kind"
    )
    return join_sentences(
        f"Of {count(len(heads), 'head')}, {name_head(first)} is shown first: {why}.",
        _describe_blank(heads, "elbow_n", "an elbow"),
        _describe_blank(heads, "recall", f"a Recall at N = {n:,}: they attend to {n} keys or fewer"),
        _describe_blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def choose_first(heads: Sequence[Row], examples: Sequence[Row]) -> tuple[Row, Row | None]:
    """The head that is shown first, and the example to show it at (``explorer_heads``, ``label_strongest``).

    Of the first label of ``WORTH_SEEING`` that has one, the head of largest share that does not rest on the sink and
    has a clear example. Without any, the head that is most clearly of its kind, if possible one that does not rest on
    the sink, and no example.
    """
    by_place = {(head["layer"], head["head"]): head for head in heads}
    for label in WORTH_SEEING:
        for example in (row for row in examples if row["label"] == label and row["held"] >= CLEAR):
            head = by_place[example["layer"], example["head"]]
            if not _rests(head):
                return head, example
    return min(heads, key=lambda head: (_rests(head), head["label"] in {None, OTHER}, -(head["margin"] or 0))), None


def _rests(head: Row) -> bool:
    """Whether a head is known to look at the sink, or gives it most of its weight."""
    return "sink" in (head.get("patterns") or "").split(", ") or (head.get("sink_weight") or 0) > CLEAR


def _describe_blank(heads: Sequence[Row], column: str, without: str) -> str:
    blank = len(heads) - len(drop_nulls(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""


MOST_KEYS, MOST_TOKENS = 60_000, 40_000
"""Most keys and tokens of the text reader of a page, which has at least one sequence."""

MOST_MEASURED = 420_000
"""Most queries of heads whose measures are there, of as many sequences as have room for all heads, or of one."""


def build_section(source: Source) -> Section:
    """Every head, one by one."""
    return Section(
        "explore",
        "Explore heads",
        "Choose a head on the map, by a click or with the arrow keys, or in the lists above it; the page’s address "
        "then links to it.",
        (_build_explorer(source),),
    )


def _build_explorer(source: Source) -> Figure:
    draft = Draft("explorer", "Heads, one by one", source.ask_query("explorer_heads", n=source.n))
    curves = source.ask_shown("explorer_curves").rows()
    if not source.last_n:
        return draft.leave_empty(NOTHING_SELECTED)
    if not draft.rows or not curves:
        return draft.leave_empty(NOT_ANALYSED)
    first, example = choose_opening(source)
    return draft.show(
        describe_explorer(draft.rows, source.n, first, example),
        "Means over sequences. Upper and lower: the printed bounds of Theorems 1 and 2, at the tightest κ, or at the "
        "middle one; scale-free: the lower bound that needs no κ. Norms and cosines, as in Figure 7 of the paper: "
        "norms of the sum s_N, also without the value state of the sink, v_0, or of the last token, v_L, and cosines "
        f"of s_N with both. Errors: how far the head’s output moves, over its norm, if it keeps the N keys with their "
        "weights rescaled, or with the rest’s weight given to the mean value state; beside them the weight left out. "
        f"{FLOOR} The elbow is the N where the harmonic mean of Precision and Recall bends most. "
        f"{taxonomy_findings.EXPLAINED}. The curves come from reports/explorer/explorer_curves.sql.",
        marks="Grey dashes: the floor N/n of Precision. Upper, lower: the paper’s bounds.",
        charts=(charts.explorer(draft.rows, curves, n=source.n, first=first),),
        broad=True,
    )


def choose_opening(source: Source) -> tuple[Row, Row | None]:
    """The head that the explorer and the text reader show first, and the example that the reader shows it at."""
    heads = source.ask_query("explorer_heads", n=source.n).rows()
    examples = source.ask_study("label_strongest", sequences=count_readable(source)).rows()
    return choose_first(heads, examples)


def count_readable(source: Source) -> int:
    """How many sequences the text reader of a page holds, from the first on; 0 if the study has no keys."""
    first = source.ask_study("reader_keys", sequences=1).rows()
    if not first:
        return 0
    of_one = sum(len(row["position"]) for row in first)
    length = 1 + max(row["query"] for row in first)
    most: int = min(MOST_KEYS // of_one, MOST_TOKENS // length, source.overview["sequences"])
    if source.ask_study("query_means").table.num_rows:
        most = min(most, MOST_MEASURED // (source.overview["all_heads"] * source.overview["context_length"]))
    return max(1, most)
