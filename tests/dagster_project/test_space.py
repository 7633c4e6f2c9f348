"""What a study will take of disks and memory is said beforehand, and refused where there is less."""

import logging
import re
from pathlib import Path

import duckdb
import pytest

from dagster_project.analysis import memory
from dagster_project.assets import space
from dagster_project.assets.asset import Extent
from dagster_project.study.home import TENSORS_VARIABLE, Home
from dagster_project.study.settings import Study
from storage import memory as system
from storage.errors import UserError
from storage.files.places import LocalPlace, Place
from storage.warehouse import connection as warehouse
from tests.dagster_project import making
from tests.dagster_project.driver import attention_geometry, files

SEQUENCES = 6
SIZES = {"sequence": 6, "query": 1, "layer": 2, "head": 4, "kv_head": 2, "key": 48, "head_dim": 16}
"""The axes of the tensors of the study of these tests."""


def study(inputs: Path, **others: object) -> Study:
    given = {"model": str(inputs / "llama"), "corpus": str(inputs / "book.txt"), "context_length": 48}
    return Study.model_validate({**given, "sequences": SEQUENCES, **others})


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let every disk have so many bytes on top of those that are always left free."""
    monkeypatch.setattr(LocalPlace, "measure_free_space", lambda _: space.SPARE + free)


def needs(home: Home, asked: Study, missing: int) -> dict[str, int]:
    """Bytes that a study still takes, by asset."""
    return space.estimate_space(Extent(making.work(home, "mine", asked), SIZES, missing))


@pytest.mark.slow
def test_a_study_says_what_it_will_take_and_takes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Synthetic numbers are random, so they compress less than those of any model."""
    sizes = {"layers": 2, "heads": 16, "kv_heads": 8, "head_dim": 64}
    given = {"model": "synthetic", "context_length": 256, "sequences": 2, "queries": [100, 255]}
    asked = Study.model_validate({**given, "synthetic": sizes, "analysis": {"kappas": [0.05, 0.5, 5]}})
    home = Home(tmp_path)
    home.prepare()
    with caplog.at_level(logging.INFO):
        making.extract(home, "mine", asked)
    told = next(line for line in caplog.messages if "takes at most" in line)
    parts = re.findall(r"([\d.]+) (MB|GB) of ([a-z ]+?)(?:,| in )", told)
    said = {part: float(size) * {"MB": 1e6, "GB": 1e9}[unit] for size, unit, part in parts}
    making.measure(home, "mine", asked)
    making.summarise(home, "mine", asked)
    assert making.land(home, "mine", asked).published
    places = {
        "tensors": [home.tensors("mine")],
        "selection metrics": [home.metrics("mine")],
        "warehouse": [LocalPlace(home.warehouse), LocalPlace(home.parts("mine"))],
    }
    assert said.keys() == places.keys()
    for what, folders in places.items():
        taken, rounded = sum(folder.measure_size() for folder in folders), 0.1e6
        assert taken <= said[what] + rounded, what
        assert taken > 0.15 * said[what], f"the bound of {what} is of the right size, not just large"


def test_a_study_that_does_not_fit_is_refused_at_once(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    total = sum(needs(home, asked, SEQUENCES).values())
    with_free(monkeypatch, total - 1)
    with pytest.raises(UserError, match=f"set sequences to {SEQUENCES - 1} or less, or set values: float16") as caught:
        making.extract(home, "mine", asked)
    assert "\n" not in str(caught.value)
    assert not home.tensors("mine").exists()

    fewer = study(inputs, sequences=SEQUENCES - 1)
    assert making.extract(home, "fewer", fewer).written == SEQUENCES - 1
    narrow = study(inputs, values="float16")
    assert making.extract(home, "narrow", narrow).written == SEQUENCES


def test_of_a_study_begun_only_the_rest_counts_and_its_settings_are_not_to_be_changed(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = Home(tmp_path), study(inputs)
    making.extract(home, "mine", asked)
    all_of_it, rest = (needs(home, asked, missing) for missing in (SEQUENCES, 1))
    assert rest["tensors"] * SEQUENCES == all_of_it["tensors"]
    with_free(monkeypatch, sum(rest.values()) - 1)
    with pytest.raises(UserError, match="make room there") as caught:
        space.check_space(Extent(making.work(home, "mine", asked), SIZES, 1))
    assert "set sequences" not in str(caught.value)
    with_free(monkeypatch, sum(rest.values()))
    space.check_space(Extent(making.work(home, "mine", asked), SIZES, 1))


def test_tensors_elsewhere_are_counted_there(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = Home(tmp_path / "root", LocalPlace(tmp_path / "tensors")), study(inputs)
    home.prepare()

    def on_one_disk(place: LocalPlace, other: Place) -> bool:
        return (place == home.tensor_root) == (other == home.tensor_root)

    def free(place: LocalPlace) -> int:
        return space.SPARE + (0 if place == home.tensor_root else 10**12)

    monkeypatch.setattr(LocalPlace, "is_on_same_disk", on_one_disk)
    monkeypatch.setattr(LocalPlace, "measure_free_space", free)
    with pytest.raises(
        UserError, match=f"in {tmp_path / 'tensors'} .* another place with {TENSORS_VARIABLE}"
    ) as caught:
        making.extract(home, "mine", asked)
    assert "of selection metrics" not in str(caught.value)


def test_tensors_that_have_landed_are_space_to_be_had(
    mine: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 1)
    with pytest.raises(UserError, match=r"attention-geometry drop STUDY`, of mine \([\d.]+ MB\)"):
        making.extract(Home(mine), "other", study(inputs))


def test_space_is_looked_at_again_for_metrics(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = Home(tmp_path), study(inputs)
    making.extract(home, "mine", asked)
    with_free(monkeypatch, 1)
    with pytest.raises(UserError, match="of selection metrics"):
        making.measure(home, "mine", asked)
    assert not home.metrics("mine").exists()


GIGABYTE = 10**9


def test_address_space_is_looked_at_before_a_run(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "measure_free_addresses", lambda: 24 * 10**8)
    refused = attention_geometry("run", "mine", "--force", "report", home=mine).complaint
    assert "A run needs 4.5 GB of address space, but 2.4 GB are allowed; raise the limit (ulimit -v)" in refused


def test_what_a_sequence_needs_is_compared_with_what_is_free(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(copied)
    before = files(copied)
    monkeypatch.setattr(memory, "measure_free_memory", lambda: 10**5)
    with pytest.raises(UserError, match=r"Measuring .* in \d+ threads needs .* MB of memory, but 0\.1 MB"):
        making.make(home, "mine", ["selection_metrics"], force=True)
    assert (
        "A run needs 1.2 GB of memory" in attention_geometry("run", "mine", "--force", "report", home=copied).complaint
    )
    with pytest.raises(UserError, match=r"Extracting one sequence of .* needs .* reduce context_length"):
        memory.check_extraction("mine", 10**5)
    assert {name for name in before if "tensors" in name} <= files(copied).keys()


def group(folder: Path, most: str, taken: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{taken}\n")
    (folder / "memory.stat").write_text(f"anon 1\nactive_file {cached // 2}\ninactive_file {cached - cached // 2}\n")


def test_control_groups_and_those_above_bound_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/user/session\n")
    (proc / "meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n")
    monkeypatch.setattr(system, "PROC", proc)
    monkeypatch.setattr(system, "GROUPS", groups)
    assert system.measure_free_memory() == 8_000_000 * 1024
    group(groups / "user" / "session", "max", 5)
    assert system.measure_free_memory() == 8_000_000 * 1024
    group(groups / "user", str(3 * GIGABYTE), 2 * GIGABYTE, cached=GIGABYTE // 2)
    assert system.measure_free_memory() == GIGABYTE + GIGABYTE // 2
    (proc / "self" / "cgroup").write_text("7:cpu:/elsewhere\n4:memory:/job\n")
    (groups / "memory" / "job").mkdir(parents=True)
    (groups / "memory" / "job" / "memory.limit_in_bytes").write_text("2000000000\n")
    (groups / "memory" / "job" / "memory.usage_in_bytes").write_text("500000000\n")
    assert system.measure_free_memory() == 1_500_000_000
    of_group_alone, with_those_below = (
        "active_file 7\ninactive_file 8\n",
        "total_active_file 300\ntotal_inactive_file 44\n",
    )
    (groups / "memory" / "job" / "memory.stat").write_text(of_group_alone + with_those_below)
    assert system.measure_free_memory() == 1_500_000_344


def test_duckdb_takes_at_most_a_part_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(most: int | None = None) -> int:
        with duckdb.connect() as connection:
            warehouse.bound_memory(connection, most)
            found = connection.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()
        return round(found[0][0] / 2**20)

    monkeypatch.setattr(warehouse, "measure_free_memory", lambda: 2**30)
    monkeypatch.setattr(warehouse, "measure_free_addresses", lambda: None)
    assert (limit(), limit(2**28)) == (819, 256)
    monkeypatch.setattr(warehouse, "measure_free_addresses", lambda: 2**29)
    assert limit() == 256
    monkeypatch.setattr(warehouse, "measure_free_addresses", lambda: 0)
    assert limit() == 128
