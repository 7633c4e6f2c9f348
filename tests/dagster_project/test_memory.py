"""Less memory than a study needs is told in one line before anything is computed; DuckDB takes what there is."""

from pathlib import Path

import duckdb
import pytest

from dagster_project.analysis import memory
from dagster_project.study.home import Home
from storage import memory as system
from storage.errors import UserError
from storage.warehouse import connection as warehouse
from tests.dagster_project import making
from tests.dagster_project.driver import attention_geometry, files

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
