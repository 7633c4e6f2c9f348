"""What a report is made of: figures, sections, and the questions asked of the warehouse."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Literal

import altair as alt
import duckdb
import pyarrow as pa

from reports.findings.numbers import Row
from reports.listings import Listing
from reports.queries import Answer, Parameter, ask
from storage.errors import UserError

Chart = alt.LayerChart | alt.ConcatChart

NOTHING_SELECTED = "No query attends to two keys or more, so there is nothing to choose between."
NOT_ANALYSED = "The warehouse holds no analysis of this study, which an earlier version landed; run it again."


@dataclass(frozen=True)
class Figure:
    """One figure of the report: charts, a table in the open, or both; with neither it says why it is empty."""

    key: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    finding: str
    """What it says of this study, a paragraph on each line. With nothing to show: why there is nothing."""
    reading: str
    """What is drawn, where in the paper its like stands, and what the paper found."""
    table: pa.Table
    """The rows behind it."""
    answer: Answer | None
    """The query that gave them; ``None``: they are computed without the warehouse."""
    charts: tuple[Chart, ...] = ()
    """Charts that stand side by side."""
    listing: Listing | None = None
    broad: bool = False
    """Whether its one chart gains from the whole width of the page."""
    stacked: bool = False
    """Whether its charts come in pairs, of which the second stands below the first where there is room for columns."""
    whole: pa.Table | None = None
    """All rows, for files, where ``table`` has but some of them since a page has no room for more."""
    titled: bool = False
    """Whether the title of its one chart is another, and stands above that chart as well."""
    paper: str = ""
    """Its like in the paper, as ``Figure 5, left``; empty: the paper has none."""
    marks: str = ""
    """What its marks are, in a line, where axes and legend do not say it."""
    tab: str = ""
    """Name of its tab among the figures beside it that have one; they share a place. Empty: it has its own place."""
    folded: bool = False
    """Whether it is folded away, with the folded ones beside it, until a reader asks for it."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.charts and self.listing is None

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of the page."""
        return self.broad or self.headed

    @property
    def headed(self) -> bool:
        """Whether it has more than one chart under its own name: several, a table, or one chart of another name."""
        return self.titled or len(self.charts) > 1 or self.listing is not None

    @property
    def drawn(self) -> list[tuple[str, Chart]]:
        """Its charts, each with a key that is unique on the page."""
        if len(self.charts) == 1:
            return [(self.key, self.charts[0])]
        return [(f"{self.key}-{index}", chart) for index, chart in enumerate(self.charts, start=1)]


@dataclass(frozen=True)
class Group:
    """Figures that stand next to each other on a page."""

    kind: Literal["open", "tabs", "folded", "empty"]
    figures: tuple[Figure, ...]

    @property
    def tabs(self) -> list[tuple[str, tuple[Figure, ...]]]:
        """The figures of each tab, by its name."""
        return [(name, tuple(some)) for name, some in groupby(self.figures, key=lambda figure: figure.tab)]


@dataclass(frozen=True)
class Section:
    """Figures that answer one question."""

    key: str
    title: str
    lead: str
    figures: tuple[Figure, ...]
    appendix: bool = False
    """Whether it stands in the appendix, folded."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its figures by how they are shown, in reading order; those with nothing to show come last."""
        shown = [figure for figure in self.figures if not figure.empty]
        empty = tuple(figure for figure in self.figures if figure.empty)
        found = [Group(kind, tuple(some)) for kind, some in groupby(shown, key=_kind)]
        return (*found, Group("empty", empty)) if empty else tuple(found)


def _kind(figure: Figure) -> Literal["open", "tabs", "folded"]:
    return "folded" if figure.folded else "tabs" if figure.tab else "open"


@dataclass
class Source:
    """One study of a warehouse, as figures ask about it; a question is asked once.

    Attributes
    ----------
    connection
        Open warehouse; only read from.
    study
        Name of the study.
    query
        Position of the query.
    last_n
        Largest N of the study; 0 if nothing was selected.
    asked_n
        N that was asked for on the maps, which no head may reach.
    """

    connection: duckdb.DuckDBPyConnection
    study: str
    query: int
    last_n: int
    asked_n: int
    _answers: dict[tuple[str, tuple[tuple[str, Parameter], ...]], Answer] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        """N of the maps."""
        return min(self.asked_n, self.last_n)

    @property
    def overview(self) -> Row:
        """What was run (``study_overview``)."""
        return self.of_study("study_overview").rows()[0]

    @cached_property
    def twin(self) -> "Source | None":
        """The study of random weights that this one is held against, if it has landed."""
        name = self.overview["twin"]
        if name is None or only_row(ask(self.connection, "study_overview", study=name)) is None:
            return None
        return find_source(self.connection, name, map_n=self.asked_n)

    def unless_old(self, why: str) -> str:
        """Why something is empty: ``why``, unless the study was landed before there were analyses."""
        return why if self.of_study("norm_variation_by_head").table.num_rows else NOT_ANALYSED

    def of_study(self, name: str, /, **parameters: Parameter) -> Answer:
        """Answer to the query of this name, which takes ``$study`` and these parameters."""
        asked = (name, tuple(sorted(parameters.items())))
        if asked not in self._answers:
            self._answers[asked] = ask(self.connection, name, study=self.study, **parameters)
        return self._answers[asked]

    def of_query(self, name: str, /, **parameters: Parameter) -> Answer:
        """Answer to the query of this name, which takes ``$study``, ``$query`` and these parameters."""
        return self.of_study(name, query=self.query, **parameters)


def find_source(connection: duckdb.DuckDBPyConnection, study: str, *, map_n: int) -> Source:
    """A study of the warehouse, at its last query, with its maps at N = ``map_n``.

    Raises
    ------
    UserError
        If the warehouse holds nothing of it.
    """
    row = only_row(ask(connection, "study_overview", study=study))
    if row is None:
        msg = f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
        raise UserError(msg)
    return Source(connection, study, query=row["query"] or 0, last_n=row["last_n"] or 0, asked_n=map_n)


def missing(key: str, title: str, answer: Answer, why: str) -> Figure:
    """A figure that keeps its place and says why it is empty."""
    return Figure(key, title, why, "", answer.table.slice(0, 0), answer)


def only_row(answer: Answer) -> Row | None:
    """The one row of an answer, if it has one."""
    return next(iter(answer.rows()), None)


def any_known(table: pa.Table, column: str) -> bool:
    """Whether a column has a value that is not NULL."""
    return bool(table[column].null_count < table.num_rows)
