"""What a report is made of: figures with their charts and tables in words, sections, and the queries behind them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import altair as alt
import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reports.findings.listings import Listing
from reports.findings.numbers import Row
from reports.queries import Answer, Parameter, ask
from storage.errors import UserError

Chart = alt.LayerChart | alt.ConcatChart

NOTHING_SELECTED = "No query attends to two keys or more, so there is nothing to select from."


@dataclass(frozen=True)
class Figure:
    """One figure of the report: charts, a visible table, or both; with neither it says why it is empty.

    It begins with its place on the page and the query behind it; ``show`` adds what it contains.
    """

    key: str  # Unique on the page; letters, digits and hyphens
    title: str
    answer: Answer | None  # The query behind it; ``None`` if it is computed without the warehouse
    finding: str = ""  # The result for this study, a paragraph on each line; for an empty figure, why it is empty
    reading: str = ""  # What is drawn, where the paper has it, and what the paper found
    part: pa.Table | None = None  # Rows behind the figure, if they are not those that the query returned
    charts: tuple[Chart, ...] = ()  # Charts, shown side by side
    listing: Listing | None = None
    broad: bool = False  # Whether its single chart takes the whole width of the page
    stacked: bool = False  # Whether its charts come in pairs, the second below the first if there is room for columns
    whole: pa.Table | None = None
    """All rows, for exported files, if ``table`` has only those for which the page has room."""
    titled: bool = False  # Whether its single chart has a title of its own, which is shown above the chart too
    paper: str = ""  # The corresponding figure of the paper, as ``Figure 5, left``; empty if the paper has none
    marks: str = ""  # Meaning of its marks, in a line, if axes and legend do not give it
    tab: str = ""
    """Name of its tab among the adjacent figures with tabs, which share a place; empty if it has its own place."""
    folded: bool = False  # Whether it is folded, together with adjacent folded figures, until a reader opens it

    @property
    def table(self) -> pa.Table:
        """Rows behind the figure."""
        return self.part if self.answer is None or self.part is not None else self.answer.table

    @cached_property
    def rows(self) -> list[Row]:
        """The same as plain rows; NULL is ``None``."""
        rows: list[Row] = self.table.to_pylist()
        return rows

    def select(self, column: str, *values: str) -> "Figure":
        """The figure of the rows with one of these values in a column."""
        return replace(self, part=select_rows(self.table, column, *values))

    def show(self, finding: str, reading: str, **contents: Any) -> "Figure":
        """The figure with these contents, which are named as its fields."""
        return replace(self, finding=finding, reading=reading, **contents)

    def leave_empty(self, why: str) -> "Figure":
        """The figure that keeps its place and says why it is empty."""
        return self.show(why, "", part=self.table.slice(0, 0))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.charts and self.listing is None

    @property
    def kind(self) -> Literal["open", "tabs", "folded"]:
        """How it is shown among its neighbours."""
        return "folded" if self.folded else "tabs" if self.tab else "open"

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
    """Adjacent figures of a page that are shown in the same way."""

    kind: Literal["open", "tabs", "folded"]
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
    appendix: bool = False  # Whether it is in the appendix, folded

    @property
    def shown(self) -> tuple[Figure, ...]:
        """Its figures that have something to show."""
        return tuple(figure for figure in self.figures if not figure.empty)

    @property
    def absent(self) -> tuple[Figure, ...]:
        """Its figures that only say why they are empty."""
        return tuple(figure for figure in self.figures if figure.empty)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its figures that have something to show by how they are shown, in reading order."""
        return tuple(Group(kind, tuple(some)) for kind, some in groupby(self.shown, key=lambda figure: figure.kind))


@dataclass
class Source:
    """One study of a warehouse, as figures query it; each query is run once."""

    connection: duckdb.DuckDBPyConnection
    study: str
    query: int  # position of the query
    last_n: int  # largest N of the study; 0 if nothing was selected
    asked_n: int  # for the maps; it may exceed the largest N of the study
    _answers: dict[tuple[str, tuple[tuple[str, Parameter], ...]], Answer] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        """N of the maps."""
        return min(self.asked_n, self.last_n)

    @property
    def overview(self) -> Row:
        """What was run (``study_overview``)."""
        return self.ask_study("study_overview").rows()[0]

    @cached_property
    def twin(self) -> "Source | None":
        """The study of random weights with which this one is compared, if it has been landed."""
        name = self.overview["twin"]
        return None if name is None else _seek_source(self.connection, name, self.asked_n)

    def ask_study(self, name: str, /, **parameters: Parameter) -> Answer:
        """Answer to the query of this name, which takes ``$study`` and these parameters."""
        question = (name, tuple(sorted(parameters.items())))
        if question not in self._answers:
            self._answers[question] = ask(self.connection, name, study=self.study, **parameters)
        return self._answers[question]

    def ask_query(self, name: str, /, **parameters: Parameter) -> Answer:
        """Answer to the query of this name, which takes ``$study``, ``$query`` and these parameters."""
        return self.ask_study(name, query=self.query, **parameters)

    def ask_shown(self, name: str, /) -> Answer:
        """Answer to the query of this name, which takes ``$study``, ``$query`` and the ``$kappa`` that figures show."""
        row = find_shown_kappa(self.ask_query("coverage").rows())
        return self.ask_query(name, kappa=None if row is None else row["kappa"])


def find_source(connection: duckdb.DuckDBPyConnection, study: str, *, map_n: int) -> Source:
    """Find a study of the warehouse, at its last query, with its maps at N = ``map_n``."""
    source = _seek_source(connection, study, map_n)
    if source is None:
        raise UserError(
            f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
        )
    return source


def _seek_source(connection: duckdb.DuckDBPyConnection, study: str, map_n: int) -> Source | None:
    overview = ask(connection, "study_overview", study=study)
    row = only_row(overview)
    if row is None:
        return None
    source = Source(connection, study, row["query"] or 0, row["last_n"] or 0, map_n)
    source._answers["study_overview", ()] = overview
    return source


def only_row(answer: Answer) -> Row | None:
    """The one row of an answer, if it has one."""
    return next(iter(answer.rows()), None)


def select_rows(table: pa.Table, column: str, *values: str) -> pa.Table:
    """The rows with one of these values in a column."""
    return table.filter(convert_column(np.isin(np.array(table[column].to_pylist(), object), values)))


def convert_column(column: NDArray[Any]) -> pa.Array:
    """A column of numbers or truth values as Arrow; ``pyarrow.array`` and its scalars load pandas, as no page needs."""
    stored = np.packbits(column, bitorder="little") if column.dtype == np.bool_ else column.copy()
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [None, pa.py_buffer(stored)])


def find_shown_kappa(kappas: Iterable[Row]) -> Row | None:
    """The κ that figures show: the one that serves best, or the middle one computed (``coverage``)."""
    return next((row for row in kappas if row["family"] == "printed" and row["shown"]), None)
