"""Eight readers run the tour's queries while four studies land: no error, no torn read; and a torn one is noticed."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.managers import SyncManager
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from benchmarks import load
from storage.warehouse.connection import locate_database
from storage.warehouse.landing import land

SIZES = {"sequences": 2, "layers": 1, "heads": 2, "context": 16}


@pytest.fixture(scope="module")
def manager() -> Iterator[SyncManager]:
    with load.CONTEXT.Manager() as manager:
        yield manager


@pytest.mark.long
def test_eight_readers_and_four_landings_do_not_meet(tmp_path: Path, manager: SyncManager) -> None:
    known = load.prepare(tmp_path, 4, SIZES)
    writer = partial(load.write, folder=tmp_path, landings=1)
    reader = partial(load.read, folder=tmp_path, known=known, studies=4, ended=manager.Queue())
    beside, busy = load.run_processes(manager, [writer] * 4, [reader] * 8)
    alone = load.Observations(seconds=[1.0])
    load.check_rounds([load.Load(alone, busy, alone, beside)])
    assert len(beside.seconds) == 4
    assert len(busy.met) == 8
    assert min(busy.met) >= 1


def in_place(folder: Path, number: int, tables: Any, ended: Any) -> None:
    """Publish a study by copying it over the one that stands there; halfway, wait until it has been opened and read.

    The first session to end may have begun before.
    """
    content = land(folder / "aside", f"study{number}", tables).path.read_bytes()
    half = len(content) // 2
    with locate_database(folder, f"study{number}").open("r+b") as file:
        file.write(content[:half])
        file.flush()
        with suppress(Empty):
            for _ in range(2):
                ended.get(timeout=30)
        file.write(content[half:])
        file.truncate()


@pytest.mark.long
def test_a_study_that_is_copied_in_place_is_noticed(tmp_path: Path, manager: SyncManager) -> None:
    known, ended = load.prepare(tmp_path, 1, SIZES), manager.Queue()
    land_one = partial(in_place, ended=ended)
    writer = partial(load.write, folder=tmp_path, landings=1, land_one=land_one)
    reader = partial(load.read, folder=tmp_path, known=known, studies=1, ended=ended)
    written, busy = load.run_processes(manager, [writer], [reader])
    assert written.seconds
    assert busy.torn or busy.errors


@pytest.mark.parametrize("part", ["quiet", "busy", "alone", "beside"])
def test_what_went_wrong_is_refused(part: str) -> None:
    fine = load.Observations(seconds=[1.0], met=[1])
    whole = load.Load(fine, fine, fine, fine)
    load.check_rounds([whole])
    bad = [replace(fine, torn=["study0"]), replace(fine, errors=["gone"]), replace(fine, seconds=[])]
    bad += [replace(fine, met=met) for met in ([1, 0], []) if part == "busy"]
    for seen in bad:
        with pytest.raises(RuntimeError, match=r"under load|met landings"):
            load.check_rounds([replace(whole, **{part: seen})])


@pytest.mark.long
def test_a_read_of_two_generations_is_torn(tmp_path: Path) -> None:
    known = load.prepare(tmp_path, 1, SIZES)
    assert {len(generations) for generations in known.values()} >= {1}
    one, other = ({pair for pair, generations in known.items() if generations == {number}} for number in (0, 1))
    assert one
    assert other
    assert not one & other
