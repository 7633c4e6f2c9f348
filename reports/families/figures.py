"""Figures of a family of studies: quantities over its members, by layer and head, claims, differences, selections."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import altair as alt

from geometry.statistics.verdicts import correct_holm
from reports.families import charts
from reports.families.charts import NAMES, name_quantity, title_quantity
from reports.figures import Figure, Section
from reports.findings.listings import DASH, Listing, format_own_interval, tabulate
from reports.findings.numbers import (
    Row,
    count,
    drop_nulls,
    format_with_interval,
    join_sentences,
    name_head,
    number,
    percent,
)
from reports.queries import Answer


def describe_members(rows: Sequence[Row]) -> str:
    """How many members there are and which are missing (``family_members``)."""
    axis, missing = rows[0]["axis"] if rows else "", [row["value"] for row in rows if not row["landed"]]
    apart = [row["value"] for row in rows if row["landed"] and not row["alike"]]
    return join_sentences(
        f"{count(len(rows), 'study', 'studies')}{f' by {axis}' if axis else ''}.",
        f"Without results: {', '.join(missing)}." if missing else "",
        f"Differences from {', '.join(apart)} are not paired, since the tokens differ." if apart else "",
    )


def describe_onsets(rows: Sequence[Row], quantity: str) -> str:
    """Which heads come to exceed the threshold of a quantity, and between which members (``family_onsets``)."""
    of_heads = [row for row in rows if row["quantity"] == quantity and row["head"] is not None]
    own = [row for row in of_heads if row["state"] == "appears"]
    waiting = len(of_heads) - len(own)
    undecided = f"Of {count(waiting, 'other head' if own else 'head')} it is undecided." if waiting else ""
    if not own:
        none = f"No head is found to come to exceed the threshold of {name_quantity(quantity)} over these studies."
        return join_sentences(none, undecided)
    first = own[0]
    between = f"between {first['last_below']} and {first['first_above']}"
    rows_of = (
        f"{count(len(own), 'head')} {'comes' if len(own) == 1 else 'come'} to exceed {first['threshold']:g} "
        f"({name_quantity(quantity)}), first {name_head(first)}, {between}."
    )
    return join_sentences(rows_of, undecided)


LARGEST = 3  # Largest number of differences that are told at the top of a page
LEVEL = 0.05  # Probability that any difference is told if nothing differs (Holm)


def tell_differences(differences: Sequence[Row], trends: Sequence[Row], claims: Sequence[Row]) -> list[str]:
    """What a page begins with: the largest differences, and the verdicts that differ.

    From ``family_differences``, ``family_of_model`` and ``family_claims``.
    """
    values = {(row["study"], row["quantity"]): row for row in trends}
    apart = find_apart(differences, trends)
    told = [_describe_difference(row, values) for row in apart[:LARGEST]]
    tested = sum(row["quantity"] in NAMES and row["difference_low"] is not None for row in differences)
    if tested:
        labels = {row["study"]: row["label"] for row in trends}
        first, last = (labels.get(name, name) for name in (differences[0][role] for role in ("reference", "study")))
        told.append(
            f"Of {count(tested, 'quantity', 'quantities')} of the model, {len(apart)} "
            f"{'differs' if len(apart) == 1 else 'differ'} between {first} and {last} with an error of 5 % for all "
            "of them (Holm)."
        )
    return [*told, *_describe_verdicts(claims)]


def find_apart(differences: Sequence[Row], trends: Sequence[Row]) -> list[Row]:
    """The named quantities that differ, corrected for their number (Holm); the clearest first."""
    from scipy import stats  # slow to import, and only families need it

    sequences = {row["study"]: row["sequences"] for row in trends if row["sequences"]}
    known = [row for row in differences if row["quantity"] in NAMES and row["difference_low"] is not None]
    statistics = []
    for row in known:
        freedom = max(1, min(sequences.get(row[role], 2) for role in ("study", "reference")) - 1)
        half = (row["difference_high"] - row["difference_low"]) / 2
        error = half / float(stats.t.ppf(0.975, freedom))
        statistics.append(
            (abs(row["difference"]) / error if error else float("inf") * bool(row["difference"]), freedom)
        )
    p = correct_holm(2 * float(stats.t.sf(statistic, freedom)) for statistic, freedom in statistics)
    apart = [(statistic, row) for (statistic, _), row, one in zip(statistics, known, p, strict=True) if one <= LEVEL]
    return [row for _, row in sorted(apart, key=lambda pair: -pair[0])]


def _describe_difference(row: Row, values: dict[tuple[str, str], Row]) -> str:
    before, after = (values[row[role], row["quantity"]] for role in ("reference", "study"))
    by, _, ends = format_with_interval(row["difference"], row["difference_low"], row["difference_high"]).partition(" (")
    return (
        f"{title_quantity(row['quantity'])}: {number(before['value'])} in {before['label']}, "
        f"{number(after['value'])} in {after['label']} (difference {by}, {ends}."
    )


def _describe_verdicts(claims: Sequence[Row]) -> Iterator[str]:
    """The differing claim that is decided in most studies, and how many others differ (``family_claims``)."""
    decided = []
    for _, rows in groupby(claims, key=lambda row: row["claim"]):
        of_claim = [row for row in rows if row["verdict"] in {"supported", "not supported"}]
        if len({row["verdict"] for row in of_claim}) > 1:
            decided.append(of_claim)
    if not decided:
        yield "No claim of the paper is supported in one study and not supported in another."
        return
    most = max(decided, key=len)
    yes, no = (
        [row["label"] for row in most if row["verdict"] == verdict] for verdict in ("supported", "not supported")
    )
    others = (
        f"; {count(len(decided) - 1, 'other claim')} differ{'s' if len(decided) == 2 else ''} too"
        if decided[1:]
        else ""
    )
    yield f"‘{most[0]['statement']}’ is supported in {', '.join(yes)}, and not in {', '.join(no)}{others}."


def tabulate_members(rows: Sequence[Row], links: Mapping[str, str]) -> Listing:
    """The members of a family (``family_members``), and whether each has landed and has a page."""

    def describe_results(row: Row) -> str:
        return "missing" if not row["landed"] else "page" if row["study"] in links else "tables"

    return tabulate(
        rows,
        {
            rows[0]["axis"] or "Name": itemgetter("value"),
            "Study": itemgetter("study"),
            "Sequences": lambda row: DASH if row["sequences"] is None else str(row["sequences"]),
            "Results": describe_results,
        },
    )


def tabulate_onsets(rows: Sequence[Row]) -> Listing:
    """The quantities that come to exceed a threshold over the members of a family (``family_onsets``), and where."""
    places: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        places.setdefault((row["quantity"], row["last_below"], row["first_above"]), []).append(row)
    return tabulate(
        [{**of[0], "where": _list_places(of)} for of in places.values()],
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Threshold": lambda row: number(row["threshold"]),
            "Last below": itemgetter("last_below"),
            "First above": itemgetter("first_above"),
            "Where (layer.head)": itemgetter("where"),
        },
    )


def _list_places(rows: Sequence[Row]) -> str:
    """The places of rows, heads last: ``model, layer 0, 0.3, 0.5``."""
    heads = [f"{row['layer']}.{row['head']}" for row in rows if row["head"] is not None]
    return ", ".join([*(_name_place(row) for row in rows if row["head"] is None), *heads])


def _name_place(row: Row) -> str:
    """The place of a row: the model, a layer or a head."""
    if row["layer"] is None:
        return "model"
    return f"layer {row['layer']}" if row["head"] is None else name_head(row)


MOST_CELLS = 20_000  # Most rows of heads by members behind a figure; beyond it, only some members are shown

BY_HEAD = ("sink_weight", "pattern_sink", "pattern_previous", "pattern_local", "pattern_induction", "recall[4]")
"""Quantities that are shown for each head."""

BY_MEMBER = (
    *("loss", *BY_HEAD, "pattern_duplicate", "top_previous", "top_induction", "effective_keys"),
    *("recall_over_random", "auc_over_random", "recall_over_shuffled", "auc_over_shuffled"),
)
"""Quantities of the model that are shown over the members."""

BESIDE_CHANCE = {"recall": "Recall", "auc": "AUC"}
"""Measures that are shown beside chance and the twins of random weights."""

WITH_ONSETS = BY_HEAD[:-1]  # Quantities of ``BY_HEAD`` that have a threshold, whose onset is sought
LEAST_SHARED = 1  # Heads of each study that are listed, those that share the fewest keys
OVERLAP_N = 16  # Largest N at which shared selections are listed

NOT_MEASURED = "No study that has landed has this quantity."


AskFamily = Callable[..., Answer]  # Answers a query by its name and its parameters but ``$family``


def build_sections(ask: AskFamily, *, ordered: bool) -> tuple[Section, ...]:
    """The sections about studies; ``ordered``: along an axis, with the same heads in each."""
    of_model = ask("family_of_model")
    onsets = ask("family_onsets")
    figures = (
        *(_build_beside_chance(of_model, name, ordered=ordered) for name in BESIDE_CHANCE),
        _build_kinds(of_model),
        _build_trends(of_model, ordered=ordered),
    )
    chosen = "The map of heads of the study that a slider chooses"
    return (
        Section(
            "trends",
            "Over the studies",
            "Each quantity of the model over the studies, mean over sequences with its 95 % interval.",
            figures,
        ),
        Section(
            "layers", "By layer", "Where in the model a quantity appears, and in which study.", (_build_layers(ask),)
        ),
        Section(
            "heads",
            "Head by head",
            f"{chosen}, and each head over the studies." if ordered else f"{chosen}.",
            (
                *(figure for name in BY_HEAD for figure in _build_heads(ask, onsets, name, ordered=ordered)),
                *([_build_onsets(onsets)] if ordered else []),
            ),
        ),
        Section(
            "changes",
            "Differences between studies",
            "Quantities of the last study minus those of the first, and keys that two studies select alike.",
            (_build_differences(ask, of_model), _build_overlaps(ask)),
        ),
    )


def tell_first(ask: AskFamily) -> list[str]:
    """The sentences with which a page begins."""
    answers = (ask(name).rows() for name in ("family_differences", "family_of_model", "family_claims"))
    return tell_differences(*answers)


def _build_trends(answer: Answer, *, ordered: bool) -> Figure:
    """Small multiples: a chart of each quantity."""
    draft = Figure("trends-of-model", "Quantities of the model", answer)
    there = [name for name in BY_MEMBER if _has_quantity(draft.rows, name)]
    if not there:
        return draft.leave_empty(NOT_MEASURED)
    reading = (
        "Points: means over heads and sequences; vertical lines: 95 % intervals over sequences; ×: a study without "
        "results."
    )
    drawn = tuple(charts.trend(draft.rows, name, ordered=ordered) for name in there)
    return draft.show("", reading, charts=drawn)


def _build_beside_chance(answer: Answer, name: str, *, ordered: bool) -> Figure:
    draft = Figure(f"beside-chance-{name}", f"{BESIDE_CHANCE[name]} beside chance", answer)
    if not _has_quantity(draft.rows, f"{name}_compared"):
        return draft.leave_empty("No study that has landed is compared with chance.")
    reading = (
        "Means over heads and ln N, with 95 % intervals over sequences; ×: a study without results. A twin has the "
        "architecture with random weights; studies without one have no such point."
    )
    drawn = (charts.separation_and_chance(draft.rows, name, BESIDE_CHANCE[name], ordered=ordered),)
    return draft.show("", reading, charts=drawn)


def _has_quantity(rows: Sequence[Row], quantity: str) -> bool:
    return any(row["quantity"] == quantity and row["value"] is not None for row in rows)


def _build_kinds(answer: Answer) -> Figure:
    draft = Figure("family-kinds", "Kinds of heads over the studies", answer)
    if not any(row["quantity"] == "other_share" for row in draft.rows):
        return draft.leave_empty(NOT_MEASURED)
    reading = "Shares of heads and sequences that meet the rule of each kind."
    return draft.show("", reading, charts=(charts.kinds(draft.rows),))


def _build_layers(ask: AskFamily) -> Figure:
    answers = {name: ask("family_layers", quantity=name) for name in BY_HEAD}
    known = {name: answer for name, answer in answers.items() if drop_nulls(answer.rows(), "value")}
    draft = Figure("layers-of-members", "Layers by studies", next(iter((known or answers).values())))
    if not known:
        return draft.leave_empty(NOT_MEASURED)
    reading = "Mean over the heads of each layer, and over sequences; ×: a study without results."
    drawn = tuple(charts.layers(each.rows(), title_quantity(name)) for name, each in known.items())
    return draft.show("", reading, charts=drawn)


def _build_heads(ask: AskFamily, onsets: Answer, quantity: str, *, ordered: bool) -> tuple[Figure, ...]:
    answer = ask("family_heads", quantity=quantity, most=MOST_CELLS)
    rows = answer.rows()
    name, key = title_quantity(quantity), re.sub(r"\W+", "-", quantity.replace("_", "-")).strip("-")

    def build(part: str, title: str, finding: str, reading: str, draw: Callable[..., alt.LayerChart]) -> Figure:
        draft = Figure(f"{part}-{key}", title, answer)
        if not drop_nulls(rows, "value"):
            return draft.leave_empty(NOT_MEASURED)
        return draft.show(finding, reading, charts=(draw(rows, title),), tab=name)

    of_map = "Mean over sequences; the slider below chooses a study."
    of_traces = "A line for each head; blue ones come to exceed the threshold (dashed), the largest with their names."
    figure = build("map", f"{name}, map of heads", "", of_map, charts.heads)
    if not ordered:
        return (figure,)
    threshold = next((row["threshold"] for row in onsets.rows() if row["quantity"] == quantity), None)
    finding = describe_onsets(onsets.rows(), quantity) if quantity in WITH_ONSETS else ""
    traces = partial(charts.traces, threshold=threshold)
    return figure, build("traces", f"{name}, head by head", finding, of_traces, traces)


def _build_onsets(answer: Answer) -> Figure:
    draft = Figure("onsets", "Onsets", answer).select("state", "appears")
    if not draft.rows:
        return draft.leave_empty("No quantity comes to exceed its threshold over these studies.")
    reading = (
        "The onset lies between the last study whose whole interval is at or below the threshold and the first whose "
        "whole interval is above it. Intervals are not adjusted for the number of heads."
    )
    return draft.show("", reading, listing=tabulate_onsets(draft.rows))


def _build_differences(ask: AskFamily, of_model: Answer) -> Figure:
    draft = Figure("differences", "Last study minus first", ask("family_differences"))
    if not draft.rows:
        return draft.leave_empty("Fewer than two studies have landed.")
    reading = (
        "Paired by sequence where the tokens are the same; correlations as Fisher’s z, ratios as logarithms. Intervals "
        "are not adjusted for the number of quantities. The table below has all of them, by their names in the table "
        "`measures`, which says what they are."
    )
    listing = tabulate(
        (row for row in draft.rows if row["quantity"] in NAMES),
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Difference (interval)": lambda row: format_own_interval(row, "difference") or DASH,
            "Pairs": lambda row: "same sequences" if row["paired"] else "other sequences",
        },
    )
    apart = len(find_apart(draft.rows, of_model.rows()))
    told = f"{apart} of the differences shown exclude 0 after Holm’s correction for their number."
    known = any(row["difference_low"] is not None for row in draft.rows)
    return draft.show(told if known else "No quantity has an interval of its difference.", reading, listing=listing)


def _build_overlaps(ask: AskFamily) -> Figure:
    draft = Figure(
        "overlaps", "Selected keys that two studies share", ask("family_overlaps", n=OVERLAP_N, heads=LEAST_SHARED)
    )
    if not draft.rows:
        return draft.leave_empty("No two consecutive studies read the same sequences.")
    reading = "Exact; a key counts if it is among the N keys of largest weight of both. The head that shares least."
    listing = tabulate(
        draft.rows,
        {
            "Study": itemgetter("label"),
            "Compared with": itemgetter("reference"),
            "Head": _name_place,
            "N": lambda row: str(row["n"]),
            "Shared (interval)": lambda row: format_own_interval(row, "shared"),
        },
    )
    lowest = next(row for row in draft.rows if row["study"] == draft.rows[-1]["study"])
    told = (
        f"{lowest['heads_changed']} of {count(lowest['heads'], 'head')} of {lowest['study']} select other keys than "
        f"those of {lowest['reference']} at N = {lowest['n']:,} in some sequence; least shared: "
        f"{percent(lowest['shared'])} in {name_head(lowest)}."
    )
    return draft.show(told, reading, listing=listing)


def build_claims(ask: AskFamily) -> Figure:
    """The verdict of each member on the claims that any of them can test."""
    draft = Figure("family-claims", "Verdicts on the claims", ask("family_claims"))
    known = {row["claim"] for row in draft.rows if row["verdict"] not in {None, "not testable"}}
    if not known:
        return draft.leave_empty("No study that has landed can test any claim.")
    reading = (
        "✓ supported, ✗ not supported, ~ undecided, ? not testable, × no results; corrected for the claims of each "
        "study."
    )
    untested = len({row["claim"] for row in draft.rows} - known)
    verb = "is" if untested == 1 else "are"
    told = f"{count(untested, 'claim')} that no study can test {verb} left out." if untested else ""
    drawn = charts.verdicts([row for row in draft.rows if row["claim"] in known])
    return draft.show(told, reading, charts=(drawn,), broad=True)
