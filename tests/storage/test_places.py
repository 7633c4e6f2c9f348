"""Places: folders and object stores are alike to a store, and what goes wrong there is said in one line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import storage.files
from storage.errors import UserError
from storage.files import objects
from storage.files.objects import RemotePlace
from storage.files.places import LocalPlace, Place
from storage.files.root import parse_place
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.storage import writer
from tests.storage.object_store import KEY_ID, SECRET, bucket

ROOT = Path(__file__).parents[2]


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[RemotePlace]:
    monkeypatch.setattr(objects, "MOST_RETRIES", 1)
    with bucket(monkeypatch) as found:
        yield found


def _resume(where: Place) -> SequenceStore:
    return SequenceStore.resume(where, TENSORS, writer.SIZES, {"study": "shared"})


def _started(where: object, processes: int, go: Path) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.storage.writer", str(where)]
    return [
        subprocess.Popen(
            [*command, str(first), str(processes), str(go)], cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE
        )
        for first in range(processes)
    ]


def _files(store: SequenceStore, folder: Path) -> dict[str, bytes]:
    """Chunks of a store in a folder, or of one in an object store, by name."""
    if isinstance(store.path, LocalPlace):
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("c/**/*") if file.is_file()}
    import obstore

    client = objects._open_client(str(store.path))
    names = [entry["path"] for found in obstore.list(client) for entry in found]
    return {name: bytes(obstore.get(client, name).bytes()) for name in names if "/c/" in name}


def test_a_place_is_a_path_or_a_url() -> None:
    assert parse_place("data/tensors") == LocalPlace(Path("data/tensors").resolve())
    assert parse_place("s3://bucket/a/b/") == RemotePlace("s3://bucket/a/b")
    assert str(parse_place("gs://bucket").join("a", "b.zarr")) == "gs://bucket/a/b.zarr"
    assert parse_place("gs://bucket").join("a", "b.zarr").name == "b.zarr"
    assert parse_place("gs://bucket/a/b.zarr").parent == RemotePlace("gs://bucket/a")
    assert LocalPlace(Path("data")).join("a", "b.zarr") == LocalPlace(Path("data/a/b.zarr"))
    assert LocalPlace(Path("data/a/b.zarr")).parent == LocalPlace(Path("data/a"))
    assert not LocalPlace(Path("data")).is_remote
    assert RemotePlace("s3://bucket/a").is_remote


def test_free_bytes_and_disks_of_folders_are_told_from_object_stores(tmp_path: Path) -> None:
    here, remote = LocalPlace(tmp_path), RemotePlace("s3://bucket/folder")
    assert here.join("not", "there").measure_free_space() == pytest.approx(here.measure_free_space(), rel=0.2)
    assert remote.measure_free_space() is None
    assert here.is_on_same_disk(here.join("not", "there"))
    assert not here.is_on_same_disk(LocalPlace(Path("/proc")))
    assert not any(one.is_on_same_disk(remote) for one in (here, remote))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "begins with 'ftp://'.*s3://"),
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://AKIAX:hidden@bucket/x", "credentials and options belong in the environment"),
        ("s3://bucket/x?secret=hidden", "credentials and options belong in the environment"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_their_secrets(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        parse_place(url)
    assert "hidden" not in str(error.value)


@pytest.mark.one_case
@pytest.mark.parametrize("where", ["folder", "object store"])
def test_processes_write_one_store_at_the_same_time(tmp_path: Path, where: str, request: pytest.FixtureRequest) -> None:
    root = LocalPlace(tmp_path) if where == "folder" else request.getfixturevalue("remote")
    path = root.join("s.zarr")
    processes = _started(path, 2, tmp_path / "go")
    for process in processes:  # once all are up, they race for the creation
        assert process.stdout is not None
        with process.stdout as said:
            assert said.readline() == b"ready\n"
    (tmp_path / "go").touch()
    assert [process.wait(120) for process in processes] == [0] * len(processes)
    store = SequenceStore.open(path, TENSORS)
    assert store.find_missing() == []
    for sequence in range(writer.SIZES["sequence"]):
        for name, array in writer.arrays(sequence).items():
            np.testing.assert_array_equal(store.read(name, sequence), array)
    assert sorted(file.name for file in tmp_path.iterdir()) == (["go", "s.zarr"] if where == "folder" else ["go"])
    assert not list(tmp_path.rglob("*.partial"))


def test_a_store_in_an_object_store_has_the_bytes_of_one_in_a_folder(remote: RemotePlace, tmp_path: Path) -> None:
    stores = [_resume(LocalPlace(tmp_path / "s.zarr")), _resume(remote.join("s.zarr"))]
    for store in stores:
        assert store.find_missing() == list(range(12))
        store.write(3, writer.arrays(3))
    assert _files(stores[0], tmp_path / "s.zarr") == _files(stores[1], tmp_path)
    assert stores[1].path.measure_size() == stores[0].path.measure_size()
    plain = zarr.open_group(remote.join("s.zarr").open_zarr(), mode="r")
    np.testing.assert_array_equal(plain["values"][3], writer.arrays(3)["values"])
    np.testing.assert_array_equal(stores[1].read("values", (3, 1)), writer.arrays(3)["values"][1])


def test_a_store_in_an_object_store_is_continued_dropped_and_removed(remote: RemotePlace) -> None:
    path = remote.join("s.zarr")
    assert not path.exists()
    _resume(path).write(0, writer.arrays(0))
    store = _resume(path)
    assert store.find_missing() == list(range(1, 12))
    with pytest.raises(UserError, match=r"s3://.*s\.zarr was made with other settings: study"):
        SequenceStore.resume(path, TENSORS, writer.SIZES, {"study": "another"})
    before = path.measure_size()
    store.drop(["values"])
    assert path.measure_size() < before
    with pytest.raises(UserError, match=r"'values'.*dropped.*--fresh"):
        SequenceStore.open(path, TENSORS).array("values")
    assert remote.measure_size() > 0
    path.remove()
    assert not path.exists()
    assert remote.measure_size() == 0


@pytest.mark.one_case
@pytest.mark.parametrize("how", ["missing", "empty", "flipped"])
def test_damage_in_an_object_store_names_its_sequence(remote: RemotePlace, how: str) -> None:
    import obstore

    path, name = remote.join("s.zarr"), "values/c/1/0/0/0/0"
    store = _resume(path)
    for sequence in range(2):
        store.write(sequence, writer.arrays(sequence))
    client = objects._open_client(str(path))
    data = bytes(obstore.get(client, name).bytes())
    obstore.delete(client, name)
    if how != "missing":
        obstore.put(client, name, b"" if how == "empty" else b"x" + data[1:])
    for read in (lambda: store.read("values", slice(2)), lambda: store.read("values", (slice(2), 0))):
        with pytest.raises(UserError, match=r"'values' of s3://.*s\.zarr is damaged in sequence 1; .*--fresh"):
            read()
    np.testing.assert_array_equal(store.read("values", 0), writer.arrays(0)["values"])
    assert np.isnan(store.read("values", 2)).all()


def test_a_write_that_fails_in_the_middle_leaves_the_sequence_missing(
    remote: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    store, put = _resume(remote.join("s.zarr")), obstore.put_async

    async def failing(client: Any, name: str, *given: Any, **options: Any) -> Any:
        if name.startswith("tokens/"):
            raise obstore.exceptions.GenericError(f"status code: 503 Slow Down: <Code>SlowDown</Code> {KEY_ID}")
        return await put(client, name, *given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "put_async", failing)
        with pytest.raises(UserError, match=r"s\.zarr failed \(503 SlowDown\).*run again") as error:
            store.write(1, writer.arrays(1))
    assert KEY_ID not in str(error.value)
    assert error.value.__suppress_context__
    assert store.find_missing() == list(range(12))
    store.write(1, writer.arrays(1))
    assert 1 not in store.find_missing()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached.*AWS_ENDPOINT_URL"),
        (
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"},
            "needs credentials.*AWS_ACCESS_KEY_ID",
        ),
        ({}, "has no such bucket"),
    ],
    ids=["endpoint", "credentials", "bucket"],
)
def test_what_goes_wrong_is_said_in_one_line_without_secrets(
    remote: RemotePlace, monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None], said: str
) -> None:
    for variable, value in change.items():
        monkeypatch.delenv(variable) if value is None else monkeypatch.setenv(variable, value)
    path = parse_place("s3://no-such-bucket/s.zarr") if not change else remote.join("s.zarr")
    with pytest.raises(UserError, match=said) as error:
        _resume(path)
    text = str(error.value)
    assert "\n" not in text
    assert str(path) in text
    assert KEY_ID not in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("status code: 403 Forbidden: <Code>InvalidAccessKeyId</Code><Id>AKIAX</Id>", "refuses.*403 InvalidAccessKey"),
        ("status code: 401 Unauthorized", "refuses these credentials"),
        ("status code: 500: <Code>InternalError</Code>", r"failed \(500 InternalError\)"),
        ("status code: 404: <Code>ContainerNotFound</Code>", "has no such bucket"),
        ("HTTP error: error sending request: 169.254.169.254", "needs credentials"),
    ],
)
def test_answers_are_understood_without_being_repeated(answer: str, said: str) -> None:
    obstore = pytest.importorskip("obstore", reason="obstore, the client of object stores, is not installed")
    with pytest.raises(UserError, match=said) as error, objects.translate_errors("s3://bucket/x"):
        raise obstore.exceptions.GenericError(answer)
    assert "AKIAX" not in str(error.value)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "storage.files.objects")
    monkeypatch.delattr(storage.files, "objects")
    with pytest.raises(UserError, match=r"attention-geometry\[remote\]"):
        parse_place("s3://bucket-of-nobody/x")


def test_a_folder_that_is_a_link_is_not_replaced(tmp_path: Path) -> None:
    there, link = tmp_path / "there", LocalPlace(tmp_path / "link")
    (there / "c").mkdir(parents=True)
    link.path.symlink_to(there)
    for change in (link.remove, link.set_aside, lambda: link.create(Path.mkdir)):
        with pytest.raises(UserError, match=r"is a link to .*there, whose target is never replaced or deleted"):
            change()
    assert (there / "c").is_dir()
    link.join("c").remove()
    assert list(there.iterdir()) == []
