"""Studies and reports that the tests of this folder share; what is made once is only read."""

import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import duckdb
import pytest
from altair.utils.schemapi import debug_mode

import sql
from reports.figures import Figure, Section, Source
from reports.page import BUILDERS, ReportSummary, write_report
from tests.made_up import SMALL, WORDS, MadeUp, warehouse
from tests.reports.drawings import build_figures
from tests.reports.driver import Browser
from tests.shared import shared

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=hacked=1>",
    "\"'><svg/onload=hacked=1>",
    "{{7*7}}",
    "{% raw %}",
    "${7*7}",
    "<!--<script>",
    "]]>",
    "&lt;b&gt;",
    "\u2028\u2029\u202e\u200d",
    "\n\t\x00\x1b",
)
"""Texts that a careless page would run, swallow or show as something else."""

THREE = MadeUp("three", queries=(5, 11, 23), first_keys=(0, 0, 10), heads=6, kappas=(0.5, 2), effects=True, drawn=True)
"""A study of three queries; in its last layer the last one does not see the sink."""
TWIN = MadeUp("noise", random=True)
"""Named otherwise than ``random``, which asks for a generated twin."""
TRAINED = MadeUp("trained", twin=TWIN)
SYNTHETIC = MadeUp("synthetic", model="synthetic", queries=(11, 23), drawn=True)
"""A study of heads that were drawn from the assumptions with known parameters."""
LONG = MadeUp("long", layers=1, heads=2, kv_heads=1, context=1537, sequences=1, queries=(99, 1536))
"""A study of two queries, of whose positions and N charts show a part."""
DEGENERATE = {
    "least": MadeUp("least", layers=1, heads=1, kv_heads=1, context=2, sequences=1),
    "one sequence": MadeUp("one sequence", sequences=1),
    "hidden sink": MadeUp("hidden sink", layers=2, first_keys=(10, 20)),
    "only itself": MadeUp("only itself", layers=2, first_keys=(23, 23)),
}


INDEX = "../index.html"
"""Where pages lead back to."""


def hostile_study() -> MadeUp:
    return MadeUp(
        study=HOSTILE[0],
        model=HOSTILE[0],
        architecture=HOSTILE[1],
        weights=f"{HOSTILE[2]}, dequantised to float32",
        corpus=HOSTILE[2],
        context=16,
        tokens=("か", "", *HOSTILE, *WORDS),  # the second continues the first
        versions=(("torch", HOSTILE[1]), (HOSTILE[1], HOSTILE[0])),
    )


EMPTY = replace(SMALL, study="empty", without=tuple(sorted({*sql.list_names("schema")} - {"studies"})))
SEVERAL = (
    THREE, SMALL, *(DEGENERATE[name] for name in ("least", "only itself")),
    replace(DEGENERATE["only itself"], study="only again"), EMPTY, hostile_study(),
)  # fmt: skip
"""Studies of several sizes, two with nothing to select, one of an unfinished version, one hostile."""


@pytest.fixture(scope="session", autouse=True)
def _whole() -> Iterator[None]:
    """Altair validates no parts of charts: tests validate whole ones."""
    with debug_mode(False):
        yield


@pytest.fixture(scope="session")
def small() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with the study ``small``, only read."""
    with warehouse(SMALL) as connection:
        yield connection


@pytest.fixture(scope="session")
def three() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with the study ``three``; what a test changes there is forgotten."""
    with warehouse(THREE) as connection:
        yield connection


@pytest.fixture(scope="session")
def several() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with the studies ``SEVERAL``; what a test changes there is forgotten."""
    with warehouse(*SEVERAL) as connection:
        yield connection


Build = Callable[[Source], Section | tuple[Section, ...]]


@pytest.fixture(scope="session")
def figures_of_three(three: duckdb.DuckDBPyConnection) -> dict[str, tuple[Build, Figure]]:
    """The figures of ``three`` by their keys, each with what builds its section."""
    return {key: (build, figure) for build in BUILDERS for key, figure in build_figures(three, THREE, build).items()}


Writer = Callable[[MadeUp, int], ReportSummary]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """Writes the page of a study, with maps at one N; once for all tests that only read it."""

    @cache
    def write(study: MadeUp, map_n: int) -> ReportSummary:
        def build(folder: Path) -> None:
            with warehouse(study, *([study.twin] if study.twin else [])) as connection:
                summary = write_report(connection, study.study, folder / "report.html", map_n=map_n, home=INDEX)
            (folder / "summary").write_bytes(pickle.dumps(summary))

        name = sha256(f"{study} {map_n}".encode()).hexdigest()
        found: ReportSummary = pickle.loads((shared(tmp_path_factory, name, build) / "summary").read_bytes())
        return found

    return write


@pytest.fixture(scope="session")
def report(written: Writer) -> ReportSummary:
    """The report of the study ``small``."""
    return written(SMALL, 4)


@pytest.fixture(scope="session")
def hostile(written: Writer) -> ReportSummary:
    """The report of a study whose every text is hostile."""
    return written(hostile_study(), 4)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A running headless Chromium that can be driven; tests that need it are skipped where it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    with Browser.start(driver, chromium, tmp_path_factory.mktemp("chromium")) as running:
        yield running
