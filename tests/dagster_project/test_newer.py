"""What a newer version of the program made is not replaced by this one, unless it is told to."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from storage.errors import refuse_newer
from tests.dagster_project.driver import attention_geometry, files
from tests.storage.earlier import recorded, rewrite, rewrite_inputs


def tensors(home: Path) -> None:
    store = home / "tensors" / "mine.zarr"
    rewrite(store, provenance=recorded(store) | {"extraction_version": 99})


def format_of_tensors(home: Path) -> None:
    rewrite(home / "tensors" / "mine.zarr", format_version=99)


def metrics(home: Path) -> None:
    rewrite_inputs(home / "metrics" / "mine.parts", metrics_version=99)


def database(home: Path) -> None:
    """One that has a table, too, which this version does not know."""
    with duckdb.connect(home / "warehouse" / "mine.duckdb") as connection:
        connection.execute("CREATE TABLE of_the_future (i INTEGER)")
        connection.execute('UPDATE studies SET provenance = json_merge_patch(provenance, \'{"landing": "99-0a"}\')')


@pytest.mark.one_case
@pytest.mark.parametrize("newer", [tensors, format_of_tensors, metrics, database])
def test_what_a_newer_version_made_is_refused_in_a_line_and_listed(copied: Path, newer: Callable[[Path], None]) -> None:
    newer(copied)
    before = files(copied)
    for arguments in (("run", "mine"), ("run", "mine", "--force", "report")):
        refused = attention_geometry(*arguments, home=copied).complaint
        assert "was made by a newer version of attention-geometry (version 99" in refused
        assert refused.endswith("upgrade, or replace it anyway: attention-geometry run mine --fresh")
    listed = attention_geometry("refresh", "mine", "--dry-run", home=copied, COLUMNS="500")
    assert "a newer version of attention-geometry" in listed.text
    assert files(copied) == before


@pytest.mark.parametrize(("was", "now"), [(4, 4), (3, "4"), ("7-ff", "7-0a"), (None, 4), ("3e4abc", "9e"), (9**9, 4)])
def test_no_other_version_is_newer(was: object, now: object) -> None:
    refuse_newer("It", was, now, "mine")
