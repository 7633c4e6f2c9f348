"""What crashes and users leave behind is removed, nothing else; damage is named with its remedy, which helps.

A campaign flips bits at random in every kind of file of a data root; ``tests.campaigns`` says how many.
"""

import errno
import hashlib
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from itertools import product
from pathlib import Path

import duckdb
import pytest

from dagster_project.records import opening
from dagster_project.records.opening import find_unreadable_records
from dagster_project.study.home import Home
from dagster_project.upkeep import doctor
from dagster_project.upkeep.clearing import clean, clear_study, find_leftovers
from dagster_project.upkeep.doctor import verify
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.objects import RemotePlace
from storage.files.parts import INPUTS, read_part
from storage.files.places import LocalPlace
from storage.warehouse.connection import connect
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.campaigns import FLIPS
from tests.dagster_project import making
from tests.dagster_project.driver import attention_geometry, files
from tests.storage.leftovers import ended, unfinished
from tests.storage.studies import tensor_store

HEX = "0123456789abcdef" * 2
HALF = (
    f"tensors/mine.zarr.{HEX}.partial/zarr.json",
    f"tensors/mine.zarr/attention/c/0/0.{HEX}.partial",
    f"metrics/mine.parts.{HEX}.replaced/layer-000-0123456789ab/keys.parquet",
    f"parts/mine.{HEX}.replaced/assumption_norms.parquet",
    f"parts/mine/top_keys-0123456789ab/top_keys.parquet.{HEX}.partial",
    f"warehouse/mine.{HEX}.partial",
    f"warehouse/mine.{HEX}.partial.tmp/spilled.tmp",
    f"warehouse/.open.sql.{HEX}.partial",
    f"studies.yaml.{HEX}.partial",
    f"refreshes/2026-01-02.json.{HEX}.partial",
    f"comparisons/mine+other.html.{HEX}.partial",
    f"locks/runs/{HEX}.lock",
)


def litter(home: Path, *names: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half" * 25)


def pages(process: int) -> tuple[str, ...]:
    return f"reports/{unfinished('mine.html', process)}", unfinished("index.html", process)


def results(home: Path) -> dict[str, bytes]:
    """All files but the script that opens the databases where they were before they were copied."""
    return {
        name: content
        for name, content in files(home).items()
        if name != "warehouse/open.sql" and not (home / name).is_dir()
    }


@pytest.mark.slow
def test_doctor_removes_what_crashes_left_and_nothing_else(copied: Path) -> None:
    before = results(copied)
    litter(copied, *HALF, *pages(ended()))
    shown = attention_geometry("doctor", home=copied).text
    assert "attention-geometry doctor --clean" in shown
    cleaned = attention_geometry("doctor", "--clean", home=copied)
    assert cleaned.code == 0, cleaned.errors
    assert re.search(r"total +│ 1,300 ", cleaned.text), cleaned.text
    assert "kept" not in cleaned.text
    assert results(copied) == before
    assert find_leftovers(Home(copied)) == []
    assert re.search(r"total +│ 0 ", attention_geometry("doctor", "--clean", home=copied).text)


def test_doctor_leaves_what_processes_work_on_and_replaced_stores_until_others_are_complete(copied: Path) -> None:
    mine, others = pages(os.getpid()), (HALF[1], HALF[5])
    litter(copied, *mine, *others, f"tensors/other.zarr.{HEX}.partial/zarr.json")
    with hold_lock(copied / "locks" / "mine.lock", "it", wait=0):
        cleaned = attention_geometry("doctor", "--clean", home=copied).text
    assert len(re.findall("kept: in use by a running process", cleaned)) == len(mine) + len(others)
    assert all((copied / name).exists() for name in (*mine, *others))
    assert not (copied / "tensors" / f"other.zarr.{HEX}.partial").exists()
    Home(copied).tensors("mine").remove()
    litter(copied, f"tensors/mine.zarr.{HEX}.replaced/zarr.json")
    cleaned = attention_geometry("doctor", "--clean", home=copied).text
    assert "kept: until the store that replaces it is complete: attention-geometry run mine" in cleaned
    assert (copied / "tensors" / f"mine.zarr.{HEX}.replaced").exists()


FOREIGN = (
    "notes.partial",
    "downloads/paper.pdf.partial",
    "experiments/run.partial_results/best.txt",
    f"experiments/{HEX}.partial",
    f"photos.{HEX}.partial/one.jpg",
    f"Mine.zarr.{HEX}.partial/zarr.json",
    "mine.zarr.old.partial/zarr.json",
    f"mine.zarr.{HEX[:31]}.partial/zarr.json",
    "mine.zarr/experiments.partial/zarr.json",
    f"mine.zarr.{HEX}.replaced.by/zarr.json",
    ".vimrc.partial",
)
"""What others may have in a folder that stores lie in too."""


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    home = Home(
        tmp_path / "data", tensor_root=LocalPlace(tmp_path / "scratch"), metric_root=LocalPlace(tmp_path / "more")
    )
    ours = (
        f"scratch/mine.zarr.{HEX}.partial/zarr.json",
        f"more/mine.parts/layer-000-{HEX[:12]}/keys.parquet.{HEX}.partial",
    )
    litter(tmp_path, *ours, *(f"{folder}/{name}" for folder in ("data", "scratch", "more") for name in FOREIGN))
    before = set(files(tmp_path))
    assert {removed.path for removed in clean(home)} == {
        LocalPlace((tmp_path / ours[0]).parent),
        LocalPlace(tmp_path / ours[1]),
    }
    assert list(clear_study(home, "mine"))
    gone = before - set(files(tmp_path))
    assert all(name.startswith(("scratch/mine.zarr", "more/mine.parts")) for name in gone)
    assert not [
        name for name in gone if name.endswith(FOREIGN) and "/mine.zarr/" not in name and "/mine.parts/" not in name
    ]


def test_clear_deletes_all_of_a_study_but_its_entry(copied: Path) -> None:
    litter(copied, *HALF[:7], "comparisons/mine+other.html", "comparisons/other+third.html", "reports/other.html")
    with closing(connect(copied / "warehouse")) as reader:
        cleared = attention_geometry("clear", "mine", "--yes", home=copied)
        assert cleared.code == 0, cleared.errors
        assert reader.execute("SELECT count(*) FROM heads WHERE study = 'mine'").fetchall()[0][0] > 0
    left = {name for name, content in files(copied).items() if content}
    assert {name for name in left if not name.startswith("warehouse/")} == {
        "studies.yaml", "index.html", "comparisons/other+third.html", "reports/other.html",
    }  # fmt: skip
    assert not list((copied / "warehouse").glob("*.duckdb"))
    assert "mine" not in (copied / "warehouse" / "open.sql").read_text(encoding="utf-8").split("ATTACH", 1)[-1]
    assert "reports/mine.html" not in (copied / "index.html").read_text(encoding="utf-8")
    again = attention_geometry("clear", "mine", "--yes", home=copied)
    assert (again.code, "│ 0 " in again.text) == (0, True)


def test_clear_asks_first_names_what_would_go_and_refuses_what_is_no_study(copied: Path) -> None:
    before = files(copied)
    for answer in ("n\n", ""):
        asked = attention_geometry("clear", "mine", home=copied, stdin=answer)
        assert asked.code == 1
        assert str(copied / "tensors" / "mine.zarr") in asked.text
    for name, given in product(("nine", "../mine", "", "*"), (["--yes"], [])):
        refused = attention_geometry("clear", name, *given, home=copied)
        assert "There is no study" in refused.complaint
        assert "[y/N]" not in refused.text + refused.errors
    assert files(copied) == before


def damages(home: Home) -> list[str]:
    return [each.damage for each in verify(home) if each.damage]


def test_what_is_being_replaced_is_in_work_and_not_damaged(tmp_path: Path) -> None:
    home, path = Home(tmp_path), tmp_path / "tensors" / "small.zarr" / "attention"
    tensor_store(home.tensors("small"))
    shutil.rmtree(path)
    with hold_lock(home.lock("small"), "it", wait=0):
        (found,) = (each for each in verify(home) if str(each.what) in str(path))
        assert (found.damage, found.in_work) == (None, True)
        assert "a process is working on it" in " ".join(
            attention_geometry("doctor", "--verify", home=tmp_path).text.split()
        )
    assert len(damages(home)) == 1


def test_an_object_store_that_does_not_answer_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: RemotePlace) -> bool:
        raise UserError("does not answer")

    monkeypatch.setattr(RemotePlace, "exists", silent)
    with pytest.raises(UserError, match="does not answer"):
        doctor._verify_place(Home(tmp_path), "small", RemotePlace("s3://b/small.zarr"), lambda: "damaged")


def test_a_study_between_two_steps_of_a_run_is_kept_for_it(copied: Path) -> None:
    before = results(copied)
    with Home(copied).reserve("mine"):
        for arguments in (("clear", "mine", "--yes"), ("drop", "mine"), ("run", "mine", "--force", "report")):
            refused = attention_geometry(*arguments, home=copied).complaint
            assert "Another process is working on study 'mine'" in refused
        planned = attention_geometry("refresh", "--dry-run", home=copied)
    assert "another process is working on it" in planned.text
    assert {name: content for name, content in results(copied).items() if name in before} == before


def test_damaged_metadata_hides_no_other_study_and_is_named(copied: Path) -> None:
    shutil.copytree(copied / "metrics" / "mine.parts", copied / "metrics" / "other.parts")
    shutil.copytree(copied / "tensors" / "mine.zarr", copied / "tensors" / "other.zarr")
    document = copied / "tensors" / "mine.zarr" / "zarr.json"
    document.write_text(document.read_text(encoding="utf-8").replace('"sizes"', '"sices"'), encoding="utf-8")
    shown = attention_geometry("doctor", home=copied, COLUMNS="400")
    assert shown.code == 0, shown.errors
    assert re.search(r"tensors +│ other +│ complete: 4 sequences", shown.text), shown.text
    assert attention_geometry("studies", home=copied).code == 0
    (found,) = damages(Home(copied))
    assert str(document.parent) in found
    assert "attention-geometry run mine" in found
    planned = attention_geometry("refresh", "mine", "--dry-run", home=copied, COLUMNS="400")
    assert (planned.code, "cannot be read" in planned.text) == (0, True), planned.text


@pytest.mark.one_case
@pytest.mark.parametrize("part", ["tensors", "metrics"])
def test_a_store_that_is_a_link_is_read_and_not_replaced_or_deleted(copied: Path, tmp_path: Path, part: str) -> None:
    store, there = Path(str(getattr(Home(copied), part)("mine"))), tmp_path / "disk" / "mine"
    there.parent.mkdir()
    store.rename(there)
    store.symlink_to(there)
    before, behind = results(copied), results(there)
    assert damages(Home(copied)) == []
    for command in (("run", "mine", "--fresh"), ("clear", "mine", "--yes"), ("drop", "mine")):
        refused = attention_geometry(*command, home=copied).complaint
        assert f"{store} is a link to {there}, whose target is never replaced or deleted" in refused
    assert results(copied) == before
    assert results(there) == behind
    assert store.is_symlink()


def test_doctor_removes_on_a_full_disk_and_records_it_later(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It recorded first, and ended in a traceback without having made any room."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    litter(copied, *HALF[:11])
    monkeypatch.setattr(opening, "register_studies", full)
    cleaned = attention_geometry("doctor", "--clean", home=copied)
    assert cleaned.code == 0
    assert "Killed runs could not be marked as failed; the next run does it: " in cleaned.errors
    assert "No space left on device" in cleaned.errors
    assert re.search(r"total +│ 1,100 ", cleaned.text), cleaned.text
    assert not [path for path in find_leftovers(Home(copied)) if path.name.endswith((".partial", ".replaced"))]


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a measured part", r"selection_counts\.parquet cannot be read \(it is not the file that was written here\)"),
        ("a part", r"top_keys\.parquet cannot be read \(it is not the file that was written here\); delete its folder"),
        ("inputs", r"layer 0 in .*mine lost; run the study again"),
        ("a table", r"top_keys in .*mine lost; run the study again"),
    ],
)
def test_what_was_exchanged_or_lost_is_named_and_a_run_mends_it(copied: Path, what: str, said: str) -> None:
    """Each file is valid, and of the same study."""
    home = Home(copied)
    first, other = (making.find_measured(home, "mine", "selection_counts", layer) for layer in (0, 1))
    keys = making.find_part(home, "mine", "top_keys")
    if what == "a measured part":
        shutil.copy(first, other)
    elif what == "a part":
        shutil.copy(making.find_part(home, "mine", "coverage_by_sequence"), keys)
    elif what == "inputs":
        first.with_name(INPUTS).unlink()
    else:
        shutil.rmtree(keys.parent)
    (found,) = damages(home)
    assert re.search(rf"{said}.*: attention-geometry run mine$", found)
    if what == "a measured part":
        shutil.rmtree(other.parent)
    making.finish(home, "mine")
    assert damages(home) == []


KINDS = {
    "chunks": "tensors/mine.zarr/*/c/**/*",
    "ledgers": "tensors/mine.zarr/finished/c/**/*",
    "documents": "tensors/mine.zarr/**/zarr.json",
    "measured": "metrics/mine.parts/*/*",
    "tables": "parts/mine/*/*.parquet",
    "footers": "parts/mine/*/*.parquet",
    "databases": "warehouse/*.duckdb",
    "records": "dagster/**/*.db",
    "settings": "dagster/*.yaml",
    "studies": "studies.yaml",
    "pages": "reports/*.html",
}
"""Patterns of files by kind; flips are spread evenly over the kinds, not over bytes, most of which are chunks."""


CHECKED = {"chunks", "ledgers", "documents", "measured", "tables", "footers"}
"""Kinds of which nearly every bit is in a checksum or digest."""

OFTEN = ("tables",)
"""What tables and pages are made of; all other kinds are flipped in long tests."""


def flip(path: Path, draw: random.Random, kind: str) -> None:
    content = bytearray(path.read_bytes())
    first = len(content) - int.from_bytes(content[-8:-4], "little") - 8 if kind == "footers" else 0
    content[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def contents(home: Home) -> dict[str, str]:
    """A digest of all that can be read of results, by what it is; what is refused in a line is left out."""
    found = {}
    for name, part in read_all(home):
        try:
            found[name] = hashlib.sha256(repr(part()).encode()).hexdigest()
        except (UserError, duckdb.Error):  # `sql` says the latter in a line, with the remedy
            continue
    return found


def read_all(home: Home) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every table, array and summary, with what reads it; no table of a database that is left out, with a warning."""
    with closing(connect(home.warehouse)) as warehouse:
        tables = warehouse.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
        attached = warehouse.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
        left_out = not any(str(path).endswith("mine.duckdb") for (path,) in attached)
        for (table,) in tables if not left_out else []:
            columns = f"FROM (SELECT hash(t) AS h FROM {table} t)"
            yield f"database {table}", lambda q=columns: warehouse.execute(f"SELECT count(*), sum(h) {q}").fetchall()
    place = home.tensors("mine")
    store = cache(partial(SequenceStore.open, place, TENSORS))
    for spec in TENSORS:
        yield f"{place} {spec.name}", lambda n=spec.name: store().read(n, slice(None)).tobytes()
    for folder in (home.parts("mine"), Path(str(home.metrics("mine")))):
        for path in sorted(folder.glob("*/*.parquet")):
            yield str(path), lambda p=path: [batch.to_pydict() for batch in read_part(LocalPlace(p))]


@pytest.mark.slow  # seconds for every flip: everything is read
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in OFTEN else pytest.mark.long) for kind in KINDS]
)
def test_flipped_bits_are_harmless_or_named(mine: Path, copied: Path, kind: str) -> None:
    home, draw, named = Home(copied), random.Random(FLIPS), 0
    before = contents(home)
    files = [path for path in sorted(copied.glob(KINDS[kind])) if path.is_file() and path.stat().st_size]
    for _ in range(-(-FLIPS // len(KINDS))):
        path = draw.choice(files)
        flip(path, draw, kind)
        damaged = [found.damage for found in verify(home) if found.damage]
        after = contents(home)
        for name, digest in after.items():
            assert digest == before[name], f"{path}: {name} is another"
        lost = before.keys() - after.keys()
        assert damaged or not lost, f"{path}: {lost} cannot be read and nothing is named"
        for line in damaged:
            assert "attention-geometry " in line
        for command in (("studies",), ("refresh", "mine", "--dry-run"), ("doctor",)):
            done = attention_geometry(*command, home=copied)
            assert done.code in {0, 1}
            assert "Traceback" not in done.errors
        named += bool(damaged)
        shutil.copyfile(mine / path.relative_to(home.root), path)
        shutil.rmtree(home.dagster)
        shutil.copytree(mine / "dagster", home.dagster)
    assert contents(home) == before
    assert find_unreadable_records(home) is None
    assert named or kind not in CHECKED
