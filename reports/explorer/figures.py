"""The explorer: a chart in which the reader chooses a head."""

from reports.chance.findings import FLOOR
from reports.explorer import charts
from reports.explorer import findings as explorer_findings
from reports.figures import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source
from reports.findings.numbers import Row
from reports.kinds import findings as taxonomy_findings

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
        f"{FLOOR} The elbow is the N where the harmonic mean of Precision and Recall bends most. "
        f"{taxonomy_findings.EXPLAINED}. The curves come from reports/explorer/explorer_curves.sql.",
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
