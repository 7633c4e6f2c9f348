"""Readers that run the tour's queries while studies land: consistency of their results, and the cost to both sides.

Holds the benchmark ``load`` and its processes.

Every landing writes another generation of its study, with different rows in its tables. A reader knows the hashes of
the tables of all generations, so that it detects a mixture of generations: a torn read.
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
from benchmarks.landing import make_tables
from benchmarks.measure import Benchmark, Result, compare
from storage.warehouse.connection import connect, list_published
from storage.warehouse.landing import land

Hashes = dict[tuple[str, int], set[int]]
"""For a table's name and the hash of its rows, the generations with this table."""

GENERATIONS = 3
"""Each has one token more of context than the one before."""

SESSION = 3
"""How often a reader runs the tour before it reopens the warehouse; the first time it also waits for a landing."""

START_WAIT = 300.0
"""Seconds that a process waits for the others to start."""

CONTEXT = multiprocessing.get_context("forkserver")


@dataclass
class Observations:
    """Results of one reader or one writer."""

    seconds: list[float] = field(default_factory=list)
    """Of each query, or each landing."""
    errors: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Studies whose tables were not all of one generation."""
    met: list[int] = field(default_factory=list)
    """For each reader, during how many of its sessions something landed."""


@dataclass(frozen=True)
class Load:
    """Results of one round: each side alone, and both together."""

    quiet: Observations
    """Readers without landings."""
    busy: Observations
    """Readers while studies land."""
    alone: Observations
    """Landings without readers."""
    beside: Observations
    """Landings while readers are running."""


def measure_load(*, readers: int, studies: int, landings: int, repeats: int, **sizes: int) -> list[Result]:
    """``readers`` reader processes, and one writer for each study, which lands ``landings`` times in a round."""
    with TemporaryDirectory() as name, CONTEXT.Manager() as manager:
        known = prepare(Path(name), studies, sizes)
        rounds = [
            run_round(manager, Path(name), known, readers=readers, studies=studies, landings=landings)
            for _ in range(repeats)
        ]
    check_rounds(rounds)
    measured = {"readers": readers, "studies": studies, "landings": studies * landings * repeats, **sizes}
    queries = sum(len(each.busy.seconds) for each in rounds)
    note = f"{queries} queries during {measured['landings']} landings: no errors, no torn reads"
    return [
        compare(
            f"load.{figure}",
            "cost",
            (f"{what}, with the other side running", _compute_quantiles(rounds, beside, quantile)),
            (f"{what}, without it", _compute_quantiles(rounds, alone, quantile)),
            sizes=measured,
            note=note,
        )
        for figure, what, beside, alone, quantile in (
            ("median", "median time of a query", "busy", "quiet", 0.5),
            ("slow", "95th percentile of a query's time", "busy", "quiet", 0.95),
            ("landing", "median time of a landing", "beside", "alone", 0.5),
        )
    ]


def check_rounds(rounds: Sequence[Load]) -> None:
    """Raise if there was an error or a torn read, or if a process did nothing or a reader met no landing."""
    for each in rounds:
        for seen in (each.quiet, each.busy, each.alone, each.beside):
            if seen.errors or seen.torn or not seen.seconds:
                msg = f"under load: errors {seen.errors[:3]}, torn reads {seen.torn[:3]}, {len(seen.seconds)} timings"
                raise RuntimeError(msg)
        if not each.busy.met or not all(each.busy.met):
            msg = f"not all readers met landings; sessions with landings, by reader: {each.busy.met}"
            raise RuntimeError(msg)


def _compute_quantiles(rounds: Sequence[Load], part: str, quantile: float) -> NDArray[np.float64]:
    return np.array([np.quantile(getattr(each, part).seconds, quantile) for each in rounds])


def prepare(folder: Path, studies: int, sizes: Mapping[str, int]) -> Hashes:
    """Land every generation of every study once; returns the hashes that identify them."""
    known: Hashes = {}
    for generation in range(GENERATIONS):
        _write_generation(folder, generation, sizes)
        for study in range(studies):
            _land(folder, study, _read_generation(folder, generation))
        with closing(connect(folder)) as connection:
            for table, number in hash_tables(connection, "study0").items():
                known.setdefault((table, number), set()).add(generation)
    return known


def run_round(
    manager: SyncManager,
    folder: Path,
    known: Hashes,
    *,
    readers: int,
    studies: int,
    landings: int,
) -> Load:
    """Run landings alone, readers alone for the same time, and both together."""
    writer = partial(write, folder=folder, landings=landings)
    reader = partial(read, folder=folder, known=known, studies=studies, ended=manager.Queue())
    started = time.monotonic()
    alone, _ = run_processes(manager, [writer] * studies, [])
    lasted = time.monotonic() - started
    _, quiet = run_processes(manager, [partial(_wait, seconds=lasted)], [reader] * readers)
    beside, busy = run_processes(manager, [writer] * studies, [reader] * readers)
    return Load(quiet, busy, alone, beside)


def run_processes(
    manager: SyncManager, writers: Sequence[Callable[..., None]], readers: Sequence[Callable[..., None]]
) -> tuple[Observations, Observations]:
    """Run each of these in its own process; returns the results of writers and of readers.

    Writers start once every reader has finished its first round, and readers continue until the writers have ended.
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
    observations = {"written": Observations(), "read": Observations()}
    while not reported.empty():
        kind, seen = reported.get()
        for name in ("seconds", "errors", "torn", "met"):
            getattr(observations[kind], name).extend(getattr(seen, name))
    died = [f"exit code {process.exitcode}" for process in processes if process.exitcode]
    observations["read"].errors.extend(died)
    return observations["written"], observations["read"]


def _report(kind: str, number: int, body: Callable[..., None], begin: Any, stop: Any, reported: Any) -> None:
    """Run ``body`` in its own process; put its results, or its error, into the queue ``reported``."""
    seen = Observations()
    try:
        body(number=number, begin=begin, stop=stop, seen=seen)
    except Exception as error:  # noqa: BLE001 (every error is reported)
        begin.abort()
        seen.errors.append(" ".join(f"{type(error).__name__}: {error}".split()))
    reported.put((kind, seen))


def _wait(*, number: int, begin: Any, stop: Any, seen: Observations, seconds: float) -> None:  # noqa: ARG001
    begin.wait(START_WAIT)
    time.sleep(seconds)


def write(
    *,
    number: int,
    begin: Any,
    stop: Any,  # noqa: ARG001
    seen: Observations,
    folder: Path,
    landings: int,
    land_one: Callable[..., None] | None = None,
) -> None:
    """Land a study repeatedly, each time another generation, by ``land_one`` if it is given."""
    made = [_read_generation(folder, generation) for generation in range(GENERATIONS)]
    begin.wait(START_WAIT)
    for _, tables in zip(range(landings), cycle(made), strict=False):
        started = time.perf_counter()
        (land_one or _land)(folder, number, tables)
        seen.seconds.append(time.perf_counter() - started)


def read(
    *, number: int, begin: Any, stop: Any, seen: Observations, folder: Path, known: Hashes, studies: int, ended: Any
) -> None:
    """Run the tour repeatedly, and verify before and after that each study is of one and the same generation.

    The reader's number is put into the queue ``ended`` after each session, and once more when it ends with an error.
    """
    met: list[bool] = []
    while not stop.is_set():
        try:
            with closing(connect(folder)) as connection:
                landed = _read_versions(folder)
                before = _find_generations(connection, known, studies)
                for turn in count(1):
                    _run_tour(connection, f"study{(number + turn) % studies}", seen)
                    if not met and turn == 1:
                        begin.wait(START_WAIT)
                    if stop.is_set() or (turn >= SESSION and (met or _read_versions(folder) != landed)):
                        break
                met.append(_read_versions(folder) != landed)
                after = _find_generations(connection, known, studies)
        except Exception:
            ended.put(number)
            raise
        finally:
            ended.put(number)
        seen.torn += [study for study in before if not before[study] & after[study]]
    seen.met.append(sum(met))


def _run_tour(connection: duckdb.DuckDBPyConnection, study: str, seen: Observations) -> None:
    """Run the tour once."""
    for text in (sql.read_statement("tour", name).text for name in sql.list_names("tour")):
        started = time.perf_counter()
        connection.execute(text, {"study": study} if "$study" in text else None).fetchall()
        seen.seconds.append(time.perf_counter() - started)


def _read_versions(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of each published file, which change when its study lands."""
    states = {study: path.stat() for study, path in list_published(folder).items()}
    return {study: (state.st_ino, state.st_mtime_ns) for study, state in states.items()}


def _find_generations(connection: duckdb.DuckDBPyConnection, known: Hashes, studies: int) -> dict[str, set[int]]:
    """For every study, the generations that all its tables belong to; empty if it is torn."""
    generations = {}
    for study in (f"study{number}" for number in range(studies)):
        each = [known.get(pair, set()) for pair in hash_tables(connection, study).items()]
        generations[study] = set.intersection(*each)
    return generations


def hash_tables(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, int]:
    """A hash of the rows of each table of a study, independent of their order and of the study's name.

    For a derived table it is the number of rows, which differs between generations: DuckDB adds floats in no fixed
    order, so that the last digits of a mean may differ between landings.
    """
    hashes = {}
    for table in sql.list_names("schema"):
        told_by = "count(*)" if table in sql.list_names("derived") else "coalesce(bit_xor(hash(t)), 0)"
        row = connection.execute(
            f"SELECT {told_by} FROM (SELECT * EXCLUDE (study) FROM {table} WHERE study = $study) t",
            {"study": study},
        ).fetchall()
        hashes[table] = int(row[0][0])
    return hashes


def _write_generation(folder: Path, generation: int, sizes: Mapping[str, int]) -> None:
    """Write the tables of one generation to Parquet files."""
    path = _build_path(folder, generation)
    path.mkdir(parents=True)
    with TemporaryDirectory(dir=folder) as name:
        tables = make_tables(Path(name), **{**sizes, "context": sizes["context"] + generation})
    for table, batches in tables.items():
        if batches:
            pq.write_table(pa.Table.from_batches(batches), path / f"{table}.parquet")


def _read_generation(folder: Path, generation: int) -> dict[str, list[pa.RecordBatch]]:
    """The tables of one generation."""
    return {path.stem: pq.read_table(path).to_batches() for path in _build_path(folder, generation).iterdir()}


def _build_path(folder: Path, generation: int) -> Path:
    return folder / "generations" / str(generation)


def _land(folder: Path, number: int, tables: Any) -> None:
    landed = land(folder, f"study{number}", tables)
    if not landed.published:
        msg = f"a study of this benchmark was refused: {landed.violations}"
        raise RuntimeError(msg)


BENCHMARK = Benchmark(
    "load",
    full=partial(
        measure_load, readers=8, studies=4, landings=4, repeats=2, sequences=8, layers=4, heads=8, context=256
    ),
    small=partial(
        measure_load, readers=2, studies=2, landings=2, repeats=1, sequences=2, layers=1, heads=2, context=16
    ),
)
