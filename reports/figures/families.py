"""Figures of a family of studies: quantities over its members, by layer and head, claims, differences, selections."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import duckdb
import pyarrow as pa

from reports.charts import families as charts
from reports.figures.parts import Figure, Section, make_empty_figure
from reports.findings import families as findings
from reports.listings import tabulate_family_differences, tabulate_onsets, tabulate_overlaps
from reports.queries import Answer, ask

MOST_CELLS = 20_000
"""Most rows of heads by members behind a figure; beyond it, only some members are shown."""

BY_HEAD = ("sink_weight", "top_previous", "top_induction", "recall[4]")
"""Quantities that are shown for each head."""

BY_MEMBER = ("recall_over_random", "auc_over_random", "recall_over_shuffled", "auc_over_shuffled", "effective_keys")
"""Quantities of the model that are shown over the members, besides those of heads."""

OVERLAP_N = 16
"""Largest N at which shared selections are listed."""

NOT_MEASURED = "No member that has landed has this quantity."


@dataclass(frozen=True)
class FamilySource:
    """A family of a warehouse, as figures query it."""

    connection: duckdb.DuckDBPyConnection
    family: str

    def ask(self, name: str, /, **parameters: str | int) -> Answer:
        """Answer to the query of this name, which takes ``$family`` and these parameters."""
        return ask(self.connection, name, family=self.family, **parameters)


def build_sections(source: FamilySource) -> tuple[Section, ...]:
    """The sections of the page of a family."""
    of_model = source.ask("family_of_model")
    onsets = source.ask("family_onsets")
    return (
        Section(
            "trends",
            "Over the members",
            "Each quantity of the model over the members of the family, mean over sequences with its 95 % interval.",
            (*(_build_trend(of_model, name) for name in (*BY_HEAD, *BY_MEMBER)), _build_kinds(of_model)),
        ),
        Section(
            "layers",
            "By layer",
            "Where in the model a quantity appears, and with which member.",
            tuple(_build_layers(source, name) for name in BY_HEAD[:3]),
        ),
        Section(
            "heads",
            "Head by head",
            "The map of heads of the member that a slider chooses, and each head over the members.",
            (
                *(figure for name in BY_HEAD for figure in _build_heads(source, onsets, name)),
                _build_onsets(onsets),
            ),
        ),
        Section(
            "changes",
            "Differences between members",
            "Quantities of the last member less those of the first, and keys that two members select alike.",
            (_build_differences(source), _build_overlaps(source)),
        ),
        Section("verdicts", "Claims of the paper", "The verdict of each member.", (_build_claims(source),)),
    )


def _build_trend(answer: Answer, quantity: str) -> Figure:
    own = _select_quantity(answer, quantity)
    key, title = f"trend-{_make_key(quantity)}", _name_title(quantity)
    if not own.num_rows:
        return make_empty_figure(key, title, answer, NOT_MEASURED)
    reading = "Points: means over heads and sequences; vertical lines: 95 % intervals over sequences."
    return Figure(key, title, "", reading, own, answer, charts=(charts.trend(own, quantity),))


def _select_quantity(answer: Answer, quantity: str) -> pa.Table:
    """The rows of one quantity."""
    return answer.table.filter(
        pa.array([name == quantity for name in answer.table["quantity"].to_pylist()], pa.bool_())
    )


def _name_title(quantity: str) -> str:
    name = findings.name_quantity(quantity)
    return name[0].upper() + name[1:]


def _make_key(quantity: str) -> str:
    """A quantity as part of a key of a figure."""
    return "".join(letter if letter.isalnum() else "-" for letter in quantity).strip("-")


def _build_kinds(answer: Answer) -> Figure:
    key, title = "family-kinds", "Kinds of heads over the members"
    if not _select_quantity(answer, "other_share").num_rows:
        return make_empty_figure(key, title, answer, NOT_MEASURED)
    reading = "Shares of heads and sequences that meet the rule of each kind."
    return Figure(key, title, "", reading, answer.table, answer, charts=(charts.kinds(answer.table),))


def _build_layers(source: FamilySource, quantity: str) -> Figure:
    answer = source.ask("family_layers", quantity=quantity)
    key, title = f"layers-{_make_key(quantity)}", f"{_name_title(quantity)}, by layer"
    if not answer.table.num_rows:
        return make_empty_figure(key, title, answer, NOT_MEASURED)
    reading = "Mean over the heads of each layer, and over sequences."
    return Figure(key, title, "", reading, answer.table, answer, charts=(charts.layers(answer.table, title),))


def _build_heads(source: FamilySource, onsets: Answer, quantity: str) -> tuple[Figure, Figure]:
    answer = source.ask("family_heads", quantity=quantity, most=MOST_CELLS)
    name, key = _name_title(quantity), _make_key(quantity)
    finding = findings.describe_onsets(onsets.rows(), quantity)

    def build(part: str, title: str, reading: str, draw: Callable[[pa.Table, str], alt.LayerChart]) -> Figure:
        if not answer.table.num_rows:
            return make_empty_figure(f"{part}-{key}", title, answer, NOT_MEASURED)
        drawn = (draw(answer.table, title),)
        return Figure(f"{part}-{key}", title, finding, reading, answer.table, answer, charts=drawn, tab=name)

    of_map = "Mean over sequences; the slider below chooses a member."
    of_traces = "A line for each head; named ones come to exceed the threshold."
    return (
        build("map", f"{name}, map of heads", of_map, charts.heads),
        build("traces", f"{name}, head by head", of_traces, charts.traces),
    )


def _build_onsets(answer: Answer) -> Figure:
    key, title = "onsets", "Onsets"
    rows = answer.rows()
    if not rows:
        return make_empty_figure(key, title, answer, "No quantity comes to exceed its threshold over these members.")
    reading = (
        "The onset lies between the last member whose whole interval is at or below the threshold and the first whose "
        "whole interval is above it. Intervals are not adjusted for the number of heads."
    )
    return Figure(key, title, "", reading, answer.table, answer, listing=tabulate_onsets(rows))


def _build_differences(source: FamilySource) -> Figure:
    key, title, answer = "differences", "Last member less first", source.ask("family_differences")
    rows = answer.rows()
    if not rows:
        return make_empty_figure(key, title, answer, "Fewer than two members have landed.")
    reading = (
        "Paired by sequence where the tokens are the same; correlations as Fisher’s z, ratios as logarithms. Intervals "
        "are not adjusted for the number of quantities."
    )
    finding, listing = findings.describe_differences(rows), tabulate_family_differences(rows)
    return Figure(key, title, finding, reading, answer.table, answer, listing=listing)


def _build_overlaps(source: FamilySource) -> Figure:
    key, title = "overlaps", "Selected keys that two members share"
    answer = source.ask("family_overlaps", n=OVERLAP_N)
    rows = answer.rows()
    if not rows:
        why = "No two consecutive members have stored weights of the same sequences."
        return make_empty_figure(key, title, answer, why)
    reading = (
        "Exact; a key counts if it is among the N keys of largest weight of both. The three heads that share least."
    )
    finding, listing = findings.describe_overlaps(rows), tabulate_overlaps(rows)
    return Figure(key, title, finding, reading, answer.table, answer, listing=listing)


def _build_claims(source: FamilySource) -> Figure:
    key, title, answer = "family-claims", "Verdicts on the claims", source.ask("family_claims")
    if not answer.table.num_rows:
        return make_empty_figure(key, title, answer, NOT_MEASURED)
    reading = "✓ supported, ✗ not supported, ~ undecided, ? not testable; corrected for the claims of each member."
    return Figure(key, title, "", reading, answer.table, answer, charts=(charts.verdicts(answer.table),), broad=True)
