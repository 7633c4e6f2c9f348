"""Figures of a family of studies: quantities over its members, by layer and head, claims, differences, selections."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import altair as alt
import duckdb

from reports.families import charts, findings
from reports.figures import Draft, Figure, Section, select_rows
from reports.findings.numbers import Row, drop_nulls
from reports.queries import Answer, ask

MOST_CELLS = 20_000
"""Most rows of heads by members behind a figure; beyond it, only some members are shown."""

BY_HEAD = ("sink_weight", "pattern_sink", "pattern_previous", "pattern_local", "pattern_induction", "recall[4]")
"""Quantities that are shown for each head."""

BY_MEMBER = (
    "loss",
    *BY_HEAD,
    "pattern_duplicate",
    "top_previous",
    "top_induction",
    "effective_keys",
    "recall_over_random",
    "auc_over_random",
    "recall_over_shuffled",
    "auc_over_shuffled",
)
"""Quantities of the model that are shown over the members."""

BESIDE_CHANCE = {"recall": "Recall", "auc": "AUC"}
"""Measures that are shown beside chance and the twins of random weights."""

WITH_ONSETS = BY_HEAD[:-1]
"""Quantities of ``BY_HEAD`` that have a threshold, whose onset is sought."""

LEAST_SHARED = 1
"""Heads of each study that are listed, those that share the fewest keys."""

OVERLAP_N = 16
"""Largest N at which shared selections are listed."""

NOT_MEASURED = "No study that has landed has this quantity."


@dataclass(frozen=True)
class FamilySource:
    """A family of a warehouse, as figures query it."""

    connection: duckdb.DuckDBPyConnection
    family: str

    def ask(self, name: str, /, **parameters: str | int) -> Answer:
        """Answer to the query of this name, which takes ``$family`` and these parameters."""
        return ask(self.connection, name, family=self.family, **parameters)


def build_sections(source: FamilySource, *, ordered: bool) -> tuple[Section, ...]:
    """The sections about studies; ``ordered``: along an axis, with the same heads in each."""
    of_model = source.ask("family_of_model")
    onsets = source.ask("family_onsets")
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
            "layers", "By layer", "Where in the model a quantity appears, and in which study.", (_build_layers(source),)
        ),
        Section(
            "heads",
            "Head by head",
            f"{chosen}, and each head over the studies." if ordered else f"{chosen}.",
            (
                *(figure for name in BY_HEAD for figure in _build_heads(source, onsets, name, ordered=ordered)),
                *([_build_onsets(onsets)] if ordered else []),
            ),
        ),
        Section(
            "changes",
            "Differences between studies",
            "Quantities of the last study minus those of the first, and keys that two studies select alike.",
            (_build_differences(source, of_model), _build_overlaps(source)),
        ),
    )


def build_verdicts(source: FamilySource) -> Section:
    """The section of the verdicts of each study on the claims of the paper."""
    return Section("verdicts", "Claims of the paper", "The verdict of each study.", (_build_claims(source),))


def tell_first(source: FamilySource) -> list[str]:
    """The sentences with which a page begins."""
    answers = (source.ask(name).rows() for name in ("family_differences", "family_of_model", "family_claims"))
    return findings.tell_first(*answers)


def _build_trends(answer: Answer, *, ordered: bool) -> Figure:
    """Small multiples: a chart of each quantity."""
    draft = Draft("trends-of-model", "Quantities of the model", answer)
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
    draft = Draft(f"beside-chance-{name}", f"{BESIDE_CHANCE[name]} beside chance", answer)
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
    draft = Draft("family-kinds", "Kinds of heads over the studies", answer)
    if not any(row["quantity"] == "other_share" for row in draft.rows):
        return draft.leave_empty(NOT_MEASURED)
    reading = "Shares of heads and sequences that meet the rule of each kind."
    return draft.show("", reading, charts=(charts.kinds(draft.rows),))


def _build_layers(source: FamilySource) -> Figure:
    answers = {name: source.ask("family_layers", quantity=name) for name in BY_HEAD}
    known = {name: answer for name, answer in answers.items() if drop_nulls(answer.rows(), "value")}
    draft = Draft("layers-of-members", "Layers by studies", next(iter((known or answers).values())))
    if not known:
        return draft.leave_empty(NOT_MEASURED)
    reading = "Mean over the heads of each layer, and over sequences; ×: a study without results."
    drawn = tuple(charts.layers(each.rows(), findings.title_quantity(name)) for name, each in known.items())
    return draft.show("", reading, charts=drawn)


def _build_heads(source: FamilySource, onsets: Answer, quantity: str, *, ordered: bool) -> tuple[Figure, ...]:
    answer = source.ask("family_heads", quantity=quantity, most=MOST_CELLS)
    rows = answer.rows()
    name, key = findings.title_quantity(quantity), re.sub(r"\W+", "-", quantity.replace("_", "-")).strip("-")

    def build(part: str, title: str, finding: str, reading: str, draw: Callable[..., alt.LayerChart]) -> Figure:
        draft = Draft(f"{part}-{key}", title, answer)
        if not drop_nulls(rows, "value"):
            return draft.leave_empty(NOT_MEASURED)
        return draft.show(finding, reading, charts=(draw(rows, title),), tab=name)

    of_map = "Mean over sequences; the slider below chooses a study."
    of_traces = "A line for each head; blue ones come to exceed the threshold (dashed), the largest with their names."
    figure = build("map", f"{name}, map of heads", "", of_map, charts.heads)
    if not ordered:
        return (figure,)
    threshold = next((row["threshold"] for row in onsets.rows() if row["quantity"] == quantity), None)
    finding = findings.describe_onsets(onsets.rows(), quantity) if quantity in WITH_ONSETS else ""
    traces = partial(charts.traces, threshold=threshold)
    return figure, build("traces", f"{name}, head by head", finding, of_traces, traces)


def _build_onsets(answer: Answer) -> Figure:
    draft = Draft("onsets", "Onsets", answer)
    table = select_rows(draft.table, "state", "appears")
    if not table.num_rows:
        return draft.leave_empty("No quantity comes to exceed its threshold over these studies.")
    reading = (
        "The onset lies between the last study whose whole interval is at or below the threshold and the first whose "
        "whole interval is above it. Intervals are not adjusted for the number of heads."
    )
    return draft.show("", reading, part=table, listing=findings.tabulate_onsets(table.to_pylist()))


def _build_differences(source: FamilySource, of_model: Answer) -> Figure:
    draft = Draft("differences", "Last study minus first", source.ask("family_differences"))
    if not draft.rows:
        return draft.leave_empty("Fewer than two studies have landed.")
    reading = (
        "Paired by sequence where the tokens are the same; correlations as Fisher’s z, ratios as logarithms. Intervals "
        "are not adjusted for the number of quantities. The table below has all of them, by their names in the table "
        "`measures`, which says what they are."
    )
    named = [row for row in draft.rows if row["quantity"] in findings.NAMES]
    finding = findings.describe_differences(draft.rows, of_model.rows())
    return draft.show(finding, reading, listing=findings.tabulate_differences(named))


def _build_overlaps(source: FamilySource) -> Figure:
    draft = Draft(
        "overlaps",
        "Selected keys that two studies share",
        source.ask("family_overlaps", n=OVERLAP_N, heads=LEAST_SHARED),
    )
    if not draft.rows:
        why = "No two consecutive studies read the same sequences."
        return draft.leave_empty(why)
    reading = "Exact; a key counts if it is among the N keys of largest weight of both. The head that shares least."
    finding, listing = findings.describe_overlaps(draft.rows), findings.tabulate_overlaps(draft.rows)
    return draft.show(finding, reading, listing=listing)


def _build_claims(source: FamilySource) -> Figure:
    draft = Draft("family-claims", "Verdicts on the claims", source.ask("family_claims"))
    known = {row["claim"] for row in draft.rows if row["verdict"] not in {None, "not testable"}}
    if not known:
        return draft.leave_empty("No study that has landed can test any claim.")
    reading = (
        "✓ supported, ✗ not supported, ~ undecided, ? not testable, × no results; corrected for the claims of each "
        "study."
    )
    finding = findings.describe_untested({row["claim"] for row in draft.rows} - known)
    return draft.show(
        finding, reading, charts=(charts.verdicts([row for row in draft.rows if row["claim"] in known]),), broad=True
    )
