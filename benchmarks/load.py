"""Readers that run the tour's queries while studies land: what they see, and what it costs either side.

Holds the benchmark ``load`` and its processes.

Every landing is of another generation of its study, with other rows in its tables. A reader knows all generations by
hashes of their tables, so that it notices when what it sees is not one of them in whole: a torn read.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from multiprocessing.managers import SyncManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import sql
from benchmarks.landing import synthetic_tables
from benchmarks.measure import Benchmark, Result, compare
from storage.warehouse.connection import connect, published
from storage.warehouse.landing import land

Hashes = dict[tuple[str, int], set[int]]
"""For a table's name and the hash of its rows, the generations that have it so."""

GENERATIONS = 3
"""Each has one token more of context than the one before."""

SESSION = 3
"""How often a reader runs the tour before it opens the warehouse anew; the first time it waits for a landing too."""

START_WAIT = 300.0
"""Seconds that one process waits for the others to have begun."""

CONTEXT = multiprocessing.get_context("forkserver")


@dataclass
class Seen:
    """What one reader, or one writer, has to tell."""

    seconds: list[float] = field(default_factory=list)
    """Of each query, or each landing."""
    errors: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Studies of which no generation was seen in whole."""
    met: list[int] = field(default_factory=list)
    """For each reader, during how many of its sessions something landed."""


@dataclass(frozen=True)
class Load:
    """Everything under load once, and each side alone."""

    quiet: Seen
    """Readers without landings."""
    busy: Seen
    """Readers while studies land."""
    alone: Seen
    """Landings without readers."""
    beside: Seen
    """Landings while readers read."""


def load(*, readers: int, studies: int, landings: int, repeats: int, **sizes: int) -> list[Result]:
    """``readers`` processes and one for each study, which lands ``landings`` times in a round."""
    with TemporaryDirectory() as name, CONTEXT.Manager() as manager:
        known = prepare(Path(name), studies, sizes)
        rounds = [
            once(manager, Path(name), known, readers=readers, studies=studies, landings=landings)
            for _ in range(repeats)
        ]
    refuse(rounds)
    measured = {"readers": readers, "studies": studies, "landings": studies * landings * repeats, **sizes}
    queries = sum(len(each.busy.seconds) for each in rounds)
    note = f"{queries} queries beside {measured['landings']} landings: no error, no torn read"
    return [
        compare(
            f"load.{figure}",
            "cost",
            (f"{what}, beside the others", _by_round(rounds, beside, quantile)),
            (f"{what}, without them", _by_round(rounds, alone, quantile)),
            sizes=measured,
            note=note,
        )
        for figure, what, beside, alone, quantile in (
            ("median", "median time of a query", "busy", "quiet", 0.5),
            ("slow", "95th percentile of a query's time", "busy", "quiet", 0.95),
            ("landing", "median time of a landing", "beside", "alone", 0.5),
        )
    ]


def refuse(rounds: Sequence[Load]) -> None:
    """Raise unless there was no error, no torn read, every process did something, and every reader met a landing."""
    for each in rounds:
        for seen in (each.quiet, each.busy, each.alone, each.beside):
            if seen.errors or seen.torn or not seen.seconds:
                msg = f"under load: errors {seen.errors[:3]}, torn reads {seen.torn[:3]}, {len(seen.seconds)} times"
                raise RuntimeError(msg)
        if not each.busy.met or not all(each.busy.met):
            msg = f"readers met landings in so many sessions: {each.busy.met}"
            raise RuntimeError(msg)


def _by_round(rounds: Sequence[Load], part: str, quantile: float) -> NDArray[np.float64]:
    return np.array([np.quantile(getattr(each, part).seconds, quantile) for each in rounds])


def prepare(folder: Path, studies: int, sizes: Mapping[str, int]) -> Hashes:
    """Land every generation of every study once; return how to tell them apart."""
    known: Hashes = {}
    for generation in range(GENERATIONS):
        _make_generation(folder, generation, sizes)
        for study in range(studies):
            _land(folder, study, _generation(folder, generation))
        with closing(connect(folder)) as connection:
            for table, number in hashes(connection, "study0").items():
                known.setdefault((table, number), set()).add(generation)
    return known


def once(
    manager: SyncManager,
    folder: Path,
    known: Hashes,
    *,
    readers: int,
    studies: int,
    landings: int,
) -> Load:
    """Landings alone, readers alone for as long, and both together."""
    writer = partial(write, folder=folder, landings=landings)
    reader = partial(read, folder=folder, known=known, studies=studies, ended=manager.Queue())
    started = time.monotonic()
    alone, _ = together(manager, [writer] * studies, [])
    lasted = time.monotonic() - started
    _, quiet = together(manager, [partial(_wait, seconds=lasted)], [reader] * readers)
    beside, busy = together(manager, [writer] * studies, [reader] * readers)
    return Load(quiet, busy, alone, beside)


def together(
    manager: SyncManager, writers: Sequence[Callable[..., None]], readers: Sequence[Callable[..., None]]
) -> tuple[Seen, Seen]:
    """Run these in a process each; return what either have seen.

    Writers begin once every reader has been through its first round, and readers go on until the writers have ended.
    """
    CONTEXT.set_forkserver_preload([__name__])
    begin, stop, reported = manager.Barrier(len(writers) + len(readers)), manager.Event(), manager.Queue()
    parts = [("written", number, body) for number, body in enumerate(writers)]
    parts += [("read", number, body) for number, body in enumerate(readers)]
    processes = [
        CONTEXT.Process(target=_report, args=(kind, number, body, begin, stop, reported))
        for kind, number, body in parts
    ]
    for process in processes:
        process.start()
    for process in processes[: len(writers)]:
        process.join()
    stop.set()
    for process in processes[len(writers) :]:
        process.join()
    found = {"written": Seen(), "read": Seen()}
    while not reported.empty():
        kind, seen = reported.get()
        for name in ("seconds", "errors", "torn", "met"):
            getattr(found[kind], name).extend(getattr(seen, name))
    died = [f"exit code {process.exitcode}" for process in processes if process.exitcode]
    found["read"].errors.extend(died)
    return found["written"], found["read"]


def _report(kind: str, number: int, body: Callable[..., None], begin: Any, stop: Any, reported: Any) -> None:
    """Run ``body`` in a process of its own; put what it has seen into ``reported``, its error too."""
    seen = Seen()
    try:
        body(number=number, begin=begin, stop=stop, seen=seen)
    except Exception as error:  # noqa: BLE001 (all of them are to be reported)
        begin.abort()
        seen.errors.append(" ".join(f"{type(error).__name__}: {error}".split()))
    reported.put((kind, seen))


def _wait(*, number: int, begin: Any, stop: Any, seen: Seen, seconds: float) -> None:  # noqa: ARG001
    begin.wait(START_WAIT)
    time.sleep(seconds)


def write(
    *,
    number: int,
    begin: Any,
    stop: Any,  # noqa: ARG001
    seen: Seen,
    folder: Path,
    landings: int,
    land_one: Callable[..., None] | None = None,
) -> None:
    """Land a study over and over, each time another generation; ``land_one`` lands another way."""
    made = [_generation(folder, generation) for generation in range(GENERATIONS)]
    begin.wait(START_WAIT)
    for _, tables in zip(range(landings), cycle(made), strict=False):
        started = time.perf_counter()
        (land_one or _land)(folder, number, tables)
        seen.seconds.append(time.perf_counter() - started)


def read(
    *, number: int, begin: Any, stop: Any, seen: Seen, folder: Path, known: Hashes, studies: int, ended: Any
) -> None:
    """Run the tour over and over, and see before and after that each study is of one and the same generation.

    The reader's number goes into the queue ``ended`` after each session, and once more when it ends with an error.
    """
    met: list[bool] = []
    while not stop.is_set():
        try:
            with closing(connect(folder)) as connection:
                landed = _versions(folder)
                before = _generations(connection, known, studies)
                for turn in count(1):
                    _ask(connection, f"study{(number + turn) % studies}", seen)
                    if not met and turn == 1:
                        begin.wait(START_WAIT)
                    if stop.is_set() or (turn >= SESSION and (met or _versions(folder) != landed)):
                        break
                met.append(_versions(folder) != landed)
                after = _generations(connection, known, studies)
        except Exception:
            ended.put(number)
            raise
        finally:
            ended.put(number)
        seen.torn += [study for study in before if not before[study] & after[study]]
    seen.met.append(sum(met))


def _ask(connection: duckdb.DuckDBPyConnection, study: str, seen: Seen) -> None:
    """Run the tour once."""
    for text in (sql.statement("tour", name).text for name in sql.names("tour")):
        started = time.perf_counter()
        connection.execute(text, {"study": study} if "$study" in text else None).fetchall()
        seen.seconds.append(time.perf_counter() - started)


def _versions(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes of each published file when its study lands."""
    states = {study: path.stat() for study, path in published(folder).items()}
    return {study: (state.st_ino, state.st_mtime_ns) for study, state in states.items()}


def _generations(connection: duckdb.DuckDBPyConnection, known: Hashes, studies: int) -> dict[str, set[int]]:
    """For every study the generations that all its tables are of; none if it is torn."""
    found = {}
    for study in (f"study{number}" for number in range(studies)):
        each = [known.get(pair, set()) for pair in hashes(connection, study).items()]
        found[study] = set.intersection(*each)
    return found


def hashes(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, int]:
    """A hash of the rows of each table of a study, whatever their order; the study's name is no part of it.

    Of a derived table the number of rows, of which every generation has another: DuckDB adds floats in no certain
    order, so that the last digits of a mean may differ from landing to landing.
    """
    found = {}
    for table in sql.names("schema"):
        told_by = "count(*)" if table in sql.names("derived") else "coalesce(bit_xor(hash(t)), 0)"
        row = connection.execute(
            f"SELECT {told_by} FROM (SELECT * EXCLUDE (study) FROM {table} WHERE study = $study) t",
            {"study": study},
        ).fetchall()
        found[table] = int(row[0][0])
    return found


def _make_generation(folder: Path, generation: int, sizes: Mapping[str, int]) -> None:
    """Write the tables of one generation to Parquet files."""
    path = _folder_of(folder, generation)
    path.mkdir(parents=True)
    with TemporaryDirectory(dir=folder) as name:
        tables = synthetic_tables(Path(name), **{**sizes, "context": sizes["context"] + generation})
    for table, batches in tables.items():
        if batches:
            pq.write_table(pa.Table.from_batches(batches), path / f"{table}.parquet")


def _generation(folder: Path, generation: int) -> dict[str, list[pa.RecordBatch]]:
    """The tables of one generation."""
    return {path.stem: pq.read_table(path).to_batches() for path in _folder_of(folder, generation).iterdir()}


def _folder_of(folder: Path, generation: int) -> Path:
    return folder / "generations" / str(generation)


def _land(folder: Path, number: int, tables: Any) -> None:
    landed = land(folder, f"study{number}", tables)
    if not landed.published:
        msg = f"a study of this benchmark is refused: {landed.violations}"
        raise RuntimeError(msg)


BENCHMARK = Benchmark(
    "load",
    full=partial(load, readers=8, studies=4, landings=4, repeats=2, sequences=8, layers=4, heads=8, context=256),
    small=partial(load, readers=2, studies=2, landings=2, repeats=1, sequences=2, layers=1, heads=2, context=16),
)
