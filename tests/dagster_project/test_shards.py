"""A study extracted in shards by several processes, finalised, kept in an object store, and its tensors dropped."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dagster_project.study.home import HOME_VARIABLE, TENSORS_VARIABLE, Home
from extract.settings import Shard
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.conftest import CONTEXT, SEQUENCES, settings
from tests.dagster_project.driver import attention_geometry, files
from tests.dagster_project.recorded import change, write_studies
from tests.storage import object_store


def record(home: Path, inputs: Path) -> None:
    """Write the study of these tests into a data root."""
    given = {"model": str(inputs / "llama"), "corpus": str(inputs / "book.txt"), "context_length": CONTEXT}
    write_studies(home, mine=given | {"sequences": SEQUENCES})


def arrays(home: Home) -> dict[str, np.ndarray]:
    store = SequenceStore.open(home.tensors("mine"), TENSORS)
    return {name: store.read(name, slice(None)) for name in store.specs}


def assert_equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_shards_make_the_same_study_and_none_may_be_missing(mine: Path, inputs: Path, tmp_path: Path) -> None:
    record(tmp_path, inputs)
    first = attention_geometry("extract", "mine", "--shard", "1/2", home=tmp_path)
    assert first.code == 0, first.errors
    assert "2 sequences written, 2 of 4 still missing" in first.text

    unfinished = attention_geometry("finalise", "mine", home=tmp_path)
    assert unfinished.code == 1
    assert "lacks 2 of 4 sequences: 2-3;" in unfinished.errors

    second = attention_geometry("extract", "mine", "--shard", "2/2", home=tmp_path)
    assert second.code == 0, second.errors
    finished = attention_geometry("finalise", "mine", home=tmp_path)
    assert finished.code == 0, finished.errors
    assert "complete, 4 sequences" in finished.text
    assert_equal(arrays(Home(tmp_path)), arrays(Home(mine)))


@pytest.mark.parametrize(
    ("held", "asked"), [(None, Shard(1, 2)), (Shard(1, 2), None), (Shard(1, 2), Shard(1, 3)), (None, None)]
)
def test_overlaps_are_refused(
    held: Shard | None, asked: Shard | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_project.study.home.SHARD_PATIENCE", 0.1)
    home = Home(tmp_path)
    with (
        home.claim("mine", held),
        pytest.raises(UserError, match="Another process"),
        home.claim("mine", asked),
    ):
        pass
    with home.claim("mine", Shard(1, 2)), home.claim("mine", Shard(2, 2)):
        pass


@pytest.mark.parametrize(("one", "other"), [(None, Shard(1, 2)), (Shard(1, 3), Shard(1, 2))])
def test_of_two_that_overlap_and_claim_at_the_same_time_one_is_refused(
    one: Shard | None, other: Shard | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: the other begins when the first has looked for rivals or has its own lock, and found none."""
    monkeypatch.setattr("dagster_project.study.home.SHARD_PATIENCE", 0.1)
    home, rivals, inside = Home(tmp_path), Home._list_rival_locks, []

    def interrupted(self: Home, study: str, shard: Shard | None) -> list[Path]:
        if shard == one and not inside:
            inside.append(shard)
            with suppress(UserError), home.claim("mine", other):
                inside.append(other)
                return []
        return rivals(self, study, shard)

    monkeypatch.setattr(Home, "_list_rival_locks", interrupted)
    with suppress(UserError), home.claim("mine", one):
        assert other not in inside, "both are running"


def test_data_roots_that_share_tensors_exclude_each_other(tmp_path: Path) -> None:
    homes = [Home(tmp_path / name, LocalPlace(tmp_path / "tensors")) for name in ("one", "other")]
    with (
        homes[0].claim("mine", Shard(1, 2)),
        pytest.raises(UserError, match="shard 1/2 of study 'mine'"),
        homes[1].claim("mine", Shard(1, 2)),
    ):
        pass


def test_metrics_that_would_need_dropped_tensors_are_refused_and_kept(copied: Path) -> None:
    """As when someone materialises the metrics alone, in the web UI."""
    attention_geometry("drop", "mine", home=copied)
    change(copied, analysis={"kappas": [0.25]})
    before = files(copied / "metrics")
    with pytest.raises(UserError, match=r"dropped.*--fresh"):
        making.measure(Home(copied), "mine")
    assert files(copied / "metrics") == before


@pytest.mark.long
def test_dropped_tensors_leave_what_was_made_of_them_and_come_where_they_are_needed(copied: Path, mine: Path) -> None:
    home, before = Home(copied), Home(copied).tensors("mine").measure_size()
    for _ in range(2):
        dropped = attention_geometry("drop", "mine", home=copied)
        assert dropped.code == 0, dropped.errors
    assert home.tensors("mine").measure_size() < before / 3
    home.report("mine").unlink()
    again = attention_geometry("run", "mine", home=copied)
    assert (again.code, home.report("mine").exists()) == (0, True), again.errors
    change(copied, analysis={"kappas": [0.25]})
    again = attention_geometry("run", "mine", home=copied)
    assert again.code == 0, again.errors
    assert "mine: makes all " in again.errors
    assert "4 of 4 sequences extracted" in again.errors
    assert_equal(arrays(home), arrays(Home(mine)))
    assert not list(copied.rglob("*.replaced"))


def test_tensors_that_have_not_landed_are_not_dropped(inputs: Path, tmp_path: Path) -> None:
    record(tmp_path, inputs)
    assert attention_geometry("extract", "mine", home=tmp_path).code == 0
    refused = attention_geometry("drop", "mine", home=tmp_path)
    assert refused.code == 1
    assert len(arrays(Home(tmp_path))["attention"]) == SEQUENCES


@pytest.mark.long
def test_tensors_in_an_object_store(mine: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store.bucket(monkeypatch) as remote:
        monkeypatch.setenv(TENSORS_VARIABLE, str(remote))
        monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
        done = attention_geometry("run", "--name", "mine", *settings(inputs), home=tmp_path)
        assert done.code == 0, done.errors
        assert not (tmp_path / "tensors").exists()
        assert_equal(arrays(Home.from_environment()), arrays(Home(mine)))
        shown = attention_geometry("doctor", home=tmp_path)
        assert str(remote) in shown.text
        assert object_store.SECRET not in shown.text + done.text + done.errors

        again = attention_geometry("run", "mine", "--fresh", home=tmp_path)
        assert again.code == 0, again.errors
        assert_equal(arrays(Home.from_environment()), arrays(Home(mine)))
