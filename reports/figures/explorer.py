"""The explorer: a chart in which the reader chooses a head."""

from reports.charts import explorer as charts
from reports.charts.head_map import head_map
from reports.figures import separation
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source
from reports.findings import explorer as explorer_findings
from reports.findings import taxonomy as taxonomy_findings
from reports.findings.head_map import describe_map
from reports.findings.numbers import Row

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
    curves = source.ask_shown("explorer_curves").table
    if not source.last_n:
        return draft.leave_empty(NOTHING_SELECTED)
    if not draft.rows or not curves.num_rows:
        return draft.leave_empty(NOT_ANALYSED)
    first, example = choose_opening(source)
    return draft.show(
        explorer_findings.describe_explorer(draft.rows, source.n, first, example),
        "Means over sequences. Upper and lower: the printed bounds of Theorems 1 and 2, at the tightest κ, or at the "
        "middle one; scale-free: the lower bound that needs no κ. Norms and cosines, as in Figure 7 of the paper: "
        "norms of the sum s_N, also without the value state of the sink, v_0, or of the last token, v_L, and cosines "
        f"of s_N with both. Errors: how far the head’s output moves, over its norm, if it keeps the N keys with their "
        "weights rescaled, or with the rest’s weight given to the mean value state; beside them the weight left out. "
        f"{separation.FLOOR} The elbow is the N where the harmonic mean of Precision and Recall bends most. "
        f"{taxonomy_findings.EXPLAINED}. The curves come from sql/queries/explorer_curves.sql.",
        marks="Grey dashes: the floor N/n of Precision. Upper, lower: the paper’s bounds.",
        charts=(charts.explorer(draft.table, curves, n=source.n, first=first),),
        broad=True,
    )


def choose_opening(source: Source) -> tuple[Row, Row | None]:
    """The head that the explorer and the text reader show first, and the example that the reader shows it at."""
    heads = source.ask_query("explorer_heads", n=source.n).rows()
    examples = source.ask_study("label_strongest", sequences=count_readable(source)).rows()
    return explorer_findings.choose_first(heads, examples)


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


def build_map(source: Source) -> Figure:
    """Every head in the plane of its curves."""
    draft = Draft("head-map", "Heads as points of a plane", source.ask_query("head_map"))
    if not draft.table.num_rows:
        return draft.leave_empty("The heads have no curves here, or ones that do not differ.")
    axes = source.ask_study("head_map_axes")
    return draft.show(
        describe_map(draft.rows, axes.rows(), source.ask_study("measures").rows()),
        "The first two principal components of each head’s curves of cos(s_N, v_0), cos(s_N, v_L) and Recall, mean "
        "over sequences, in equal steps of ln N; a curve that a head lacks counts as the mean of the others. A region "
        "around the heads of a kind may hold others. What a head looks at is the pattern of largest lift among those "
        "that it has. The paper draws no such map.",
        marks="Filled: heads of a kind; hollow: nearest to it, but they meet no rule. Lines: around the heads of a "
        "kind; dotted: around those that are of it after a change of a threshold. Ring: the chosen head.",
        charts=(head_map(draft.table, axes.table),),
        broad=True,
        tab="On a plane",
    )
