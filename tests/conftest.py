"""What the whole suite shares: the names of its tests, and changes that are forgotten.

It imports no heavy library: the process that hands tests out to others needs none.
"""

import atexit
import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from dagster_project.command.program import ExitStatus
from tests.campaigns import NIGHTLY
from tests.shared import shared

if TYPE_CHECKING:
    import duckdb

_STATUS = ExitStatus()
atexit.register(_STATUS.end)  # else a page about what DuckDB's binding has leaked follows the result of the tests


settings.register_profile(
    "anywhere",
    max_examples=200 if NIGHTLY else 50,
    deadline=None,  # nor else is it a mistake that a machine is slow or busy
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not NIGHTLY,  # a first user's examples are those that have been tried before
)
settings.load_profile("anywhere")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a shell's job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what is collected, which stays to the end, out of what the garbage collector visits again and again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember the exit code."""
    _STATUS.code = int(session.exitstatus)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keep bytes out of the tests' names: gzip writes the time into them, and every worker must collect the same."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is ``long`` as slow, and all cases but the first of what is marked ``one_case`` as slow or long.

    Tests of the whole checkout, of half a minute each, begin first: no process is left alone with one at the end. Files
    of all folders take turns, so that few processes wait for what another makes for all tests of a folder.
    """
    here, paths = Path(__file__).parent, dict.fromkeys(item.path for item in items)
    places = {path: [other for other in paths if other.parent == path.parent].index(path) for path in paths}
    items.sort(key=lambda item: (item.path.parent != here, places[item.path], item.path))
    begun: set[str] = set()
    for item in items:
        function = item.nodeid.split("[")[0]
        if (alone := item.get_closest_marker("one_case")) and function in begun:
            item.add_marker(alone.kwargs.get("others", "slow"))
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
        begun.add(function)


@pytest.fixture(scope="session", autouse=True)
def made_up_studies(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the databases of made-up studies for all processes of this run."""
    from tests import made_up

    made_up.KEPT[:] = [shared(tmp_path_factory, "made_up", lambda _: None)]


@pytest.fixture(scope="session")
def landed_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root whose warehouse holds the made-up study ``small``; only read, by several processes."""
    from tests.storage.studies import land_small

    return shared(tmp_path_factory, "landed", land_small)


@pytest.fixture(autouse=True)
def _without_comments(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the comments of tables and views, half of what a connection takes, but in tests of them."""
    if not request.node.get_closest_marker("comments"):
        for module in ("connection", "relations"):
            monkeypatch.setattr(f"storage.warehouse.{module}.comment", lambda *_: None)


@pytest.fixture
def changed(good: "duckdb.DuckDBPyConnection") -> "Iterator[duckdb.DuckDBPyConnection]":
    """The database ``good`` of a module; what a test changes there is forgotten."""
    good.begin()
    yield good
    good.rollback()
