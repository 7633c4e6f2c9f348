"""The data root: stores set aside whole, studies claimed by one process or in shards, kept elsewhere, and dropped."""

import errno
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagster_project.analysis import devices
from dagster_project.analysis.metrics import Metrics
from dagster_project.assets import metrics as measuring
from dagster_project.assets import tensors
from dagster_project.study.home import HOME_VARIABLE, TENSORS_VARIABLE, Home
from dagster_project.study.settings import AnalysisSettings, Study
from extract.settings import Shard
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.objects import RemotePlace
from storage.files.parts import INPUTS
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.conftest import CONTEXT, SEQUENCES, settings
from tests.dagster_project.driver import attention_geometry, files
from tests.dagster_project.recorded import change, write_studies
from tests.refusals import read_refusal
from tests.storage import object_store
from tests.storage.studies import (
    N_KEYS,
    QUERIES,
    SIZES,
    measured,
    one_sequence,
    provenance,
    tensor_store,
    write_metrics,
)

STUDY = Study(model="embedded", corpus="embedded", context_length=12, sequences=3, queries=QUERIES)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    tensors = tensor_store(home.tensors("small"))
    write_metrics(Metrics.of(home, "small", tensors, STUDY.analysis), measured(tensors, STUDY.analysis.kappas))
    return home


def test_stores_set_aside_come_back_if_nothing_new_was_made(home: Home) -> None:
    def failing() -> None:
        with home.set_stores_aside("small"):
            assert not home.tensors("small").exists()
            raise UserError("the model is gone")

    before = files(home.root)
    with pytest.raises(UserError, match="the model is gone"):
        failing()
    assert files(home.root) == before


SYNTHETIC = Study(model="synthetic", context_length=8, sequences=3, synthetic={"layers": 1, "heads": 2, "kv_heads": 1})
OTHER = SYNTHETIC.model_copy(update={"seed": 1})


def replaced(home: Home) -> list[str]:
    return sorted(path.parent.name for path in home.root.rglob("*.replaced"))


def test_a_replacement_that_fails_half_way_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, write = Home(tmp_path), SequenceStore.write
    making.extract(home, "drawn", SYNTHETIC)
    home.parts("drawn").mkdir(parents=True)

    def full_at(sequence: int) -> Callable[..., None]:
        def full(store: SequenceStore, index: int, arrays: dict[str, np.ndarray]) -> None:
            if index == sequence:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(store, index, arrays)

        return full

    monkeypatch.setattr(SequenceStore, "write", full_at(1))
    with pytest.raises(UserError, match="keeps 1 of 3 sequences"):
        making.extract(home, "drawn", OTHER, replace=True)
    assert replaced(home) == ["parts", "tensors"]
    assert SequenceStore.open(LocalPlace(next(home.root.glob("tensors/*.replaced"))), TENSORS).find_missing() == []
    monkeypatch.undo()
    assert making.extract(home, "drawn", OTHER, replace=True).written == 2
    home.discard_replaced("drawn")
    assert making.extract(home, "drawn", SYNTHETIC, replace=True).written == 3
    assert replaced(home) == []


def test_what_is_replaced_is_decided_while_nobody_works_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    making.extract(home, "drawn", SYNTHETIC)
    before = files(tmp_path)
    monkeypatch.setattr(tensors, "_needs_replacement", lambda *_: pytest.fail("looked at while another works on it"))
    with hold_lock(home.lock("drawn"), "it", wait=0), pytest.raises(UserError, match="Another process is working"):
        making.extract(home, "drawn", OTHER, replace=True)
    assert files(tmp_path) == before


def test_folders_come_back_if_an_object_store_does_not_take_part(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Home):
        def metrics(self, study: str) -> RemotePlace:
            return RemotePlace(f"s3://bucket/{study}.parts")

    def silent(_: RemotePlace) -> None:
        raise UserError("does not answer")

    monkeypatch.setattr(RemotePlace, "remove", silent)
    with pytest.raises(UserError, match="does not answer"), Silent(home.root).set_stores_aside("small"):
        pass
    assert home.tensors("small").exists()
    assert replaced(home) == []


def test_a_study_is_claimed_by_who_holds_it_or_a_shard_of_it(home: Home) -> None:
    assert not home.is_claimed("small")
    assert not home.lock("small").exists()
    for held in (home.claim("small"), home.claim("small", Shard(2, 8)), home.reserve("small")):
        with held:
            assert home.is_claimed("small")
            assert not home.is_claimed("other")
    assert not home.is_claimed("small")


def test_a_row_of_nan_is_no_distribution(tmp_path: Path) -> None:
    """Python's max() would overlook a NaN that is not the first."""
    from extract.extraction import _compute_row_sum_deviation

    store = tensor_store(tmp_path / "s.zarr")
    assert _compute_row_sum_deviation(store, range(2)) < 1e-6
    store.array("attention")[1, 0] = np.nan
    assert np.isnan(_compute_row_sum_deviation(store, range(2)))


@pytest.mark.parametrize(
    ("computed_on", "asked", "present", "expected"),
    [
        ("cpu", "auto", 2, None),
        ("cuda (NVIDIA H200)", "auto", 1, "cuda"),
        ("cuda (NVIDIA H200)", "cuda:1", 2, "cuda:1"),
        ("cuda (NVIDIA H200)", "cuda:1", 1, "cuda"),
        ("cuda (NVIDIA H200)", "cuda", 0, None),
    ],
)
def test_metrics_are_computed_where_the_tensors_were(
    computed_on: str, asked: str, present: int, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: present)
    made = {"versions": {"device": computed_on}, "settings": {"device": asked}}
    assert devices.find_cuda_device(made) == expected


def test_a_device_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    tensor_store(home.tensors("small"))

    def failing(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nMore.")

    monkeypatch.setattr(measuring, "measure_rows", failing)
    with pytest.raises(RuntimeError):  # on the CPU it is no matter of the device
        making.measure(home, "small", STUDY)
    home.metrics("small").remove()
    monkeypatch.setattr(measuring, "find_cuda_device", lambda _: "cuda:1")
    assert read_refusal(making.measure, home, "small", STUDY) == (
        "The metrics of study 'small' could not be computed on the device 'cuda:1' (CUDA out of memory); "
        "CUDA_VISIBLE_DEVICES= attention-geometry run small computes them on the CPU"
    )


def test_measuring_uses_the_settings_and_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from geometry import layers

    home, asked, measure_layer = Home(tmp_path), {}, layers.measure_layer

    def on_the_cpu(*arrays: Any, **given: Any) -> None:
        asked.update(given)
        measure_layer(*arrays, **{**given, "device": None})

    monkeypatch.setattr(layers, "measure_layer", on_the_cpu)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    made_of = provenance(device="cuda") | {"versions": {"device": "cuda (somewhere else)"}}
    store = SequenceStore.resume(home.tensors("small"), TENSORS, SIZES, made_of)
    for index in store.find_missing():
        store.write(index, one_sequence(index))
    study = STUDY.model_copy(update={"analysis": AnalysisSettings(kappas=(2, 0.5), scale="raw")})
    assert making.measure(home, "small", study).metadata["dagster/row_count"] == 3 * 4 * (N_KEYS - 1).sum()
    assert asked == {"kappas": (0.5, 2.0), "scale": "raw", "device": "cuda"}
    metrics = making.work(home, "small", study).sources.metrics
    assert metrics.made_of["analysis"] == {"kappas": [0.5, 2.0], "scale": "raw"}
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert making.measured(making.measure(home, "small", study)) == 0, "it is kept wherever it was computed"
    making.find_measured(home, "small", "keys", layer=1).with_name(INPUTS).unlink()
    with pytest.raises(UserError, match="were started on the device 'cuda'"):
        making.measure(home, "small", study)


def test_new_roots_are_for_their_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "root", LocalPlace(tmp_path / "tensors"), LocalPlace(tmp_path / "metrics"))
    with home.claim("a"):
        for folder in (home.root, tmp_path / "tensors", tmp_path / "metrics"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    home.root.chmod(0o770)  # for a group that shares it
    home.prepare()
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o770


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
    ("held", "asked", "where"),
    [
        (None, Shard(1, 2), "one"),
        (Shard(1, 2), None, "one"),
        (Shard(1, 2), Shard(1, 3), "one"),
        (None, None, "one"),
        (Shard(1, 2), Shard(1, 2), "another that shares its tensors"),
    ],
)
def test_overlaps_are_refused(
    held: Shard | None, asked: Shard | None, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_project.study.home.SHARD_PATIENCE", 0.1)
    home, other = (Home(tmp_path / name, LocalPlace(tmp_path / "tensors")) for name in ("one", where))
    with home.claim("mine", held), pytest.raises(UserError, match="Another process"), other.claim("mine", asked):
        pass
    with home.claim("mine", Shard(1, 2)), other.claim("mine", Shard(2, 2)):
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
