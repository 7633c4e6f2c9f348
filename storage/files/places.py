"""Places of stores: a folder, or a prefix of an object store such as ``s3://bucket/folder``.

Both kinds implement ``Place``, so stores work the same way in either.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import urlsplit

from storage.errors import UserError
from storage.files import staging
from storage.files.user_paths import open_regular_file, resolve_path

OF_PARTS = re.compile(r"-[0-9a-f]{12}$")
"""The digest at the end of the name of a folder of parts (``storage.files.parts``)."""

SCHEMES = ("s3", "gs", "az")
"""Object stores by the scheme of their URLs: Amazon S3 and compatible stores, Google Cloud Storage, Azure."""


class Place(Protocol):
    """The location of one store, of a part of it, or of the stores of all studies.

    Operations on an object store raise ``UserError`` if it does not answer or refuses the credentials.
    """

    @property
    def name(self) -> str:
        """The last part of the path or URL."""

    @property
    def parent(self) -> "Place":
        """The place above it."""

    @property
    def is_remote(self) -> bool:
        """Whether it may be temporarily unreachable."""

    def join(self, *parts: str) -> Self:
        """The place ``parts`` below this one."""

    def exists(self) -> bool:
        """Whether a store exists at this place."""

    def has_file(self, name: str) -> bool:
        """Whether the file ``name`` of the store exists and is not empty."""

    def has_folder(self, name: str) -> bool | None:
        """Whether the folder ``name`` of the store exists; None if the place has no folders."""

    def read(self, name: str) -> bytes:
        """All bytes of the file ``name`` of the store; ``FileNotFoundError`` if it is missing."""

    def write(self, name: str, content: bytes) -> None:
        """Write a small file next to the arrays of the store atomically; missing folders are created."""

    def open(self, name: str) -> BinaryIO:
        """Open the file ``name`` to read parts of it; ``FileNotFoundError`` if it is missing."""

    def stage(self, name: str) -> AbstractContextManager[Path]:
        """Yield a path for a large file, which becomes the file ``name`` atomically after the context."""

    def list_folders(self) -> list[str]:
        """The names of the folders directly below, ascending, without unfinished ones."""

    def refuse_link(self) -> None:
        """Raise ``UserError`` if the place is a link to a folder: links are read and written, but never replaced."""

    def create(self, build: Callable[[Path], None]) -> None:
        """Publish the empty Zarr group that ``build`` makes in a folder; a group that exists already is kept."""

    def remove(self) -> None:
        """Remove the store, if it exists; a process killed meanwhile leaves no store, or one without sequences."""

    def set_aside(self) -> Path | None:
        """Make room for a new store: rename this one and return its folder, or remove it if renaming is impossible.

        None if there is no copy that could be restored.
        """

    def discard_replaced(self) -> None:
        """Remove the copies that ``set_aside`` renamed, in this or in a killed process."""

    def remove_leftovers(self) -> None:
        """Remove half-written files of killed processes in the store and next to it; no other process may write."""

    def measure_size(self) -> int:
        """Bytes of all files or objects of the store; 0 if there are none."""

    def measure_free_space(self) -> int | None:
        """Bytes that can still be written; None for an object store."""

    def is_on_same_disk(self, other: "Place") -> bool:
        """Whether both are folders on the same disk."""

    def open_zarr(self) -> Any:
        """The path or Zarr store by which Zarr opens it."""


@dataclass(frozen=True)
class LocalPlace:
    """A folder of this machine, or a file."""

    path: Path
    is_remote = False

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def parent(self) -> "LocalPlace":
        """The folder above it."""
        return LocalPlace(self.path.parent)

    def join(self, *parts: str) -> "LocalPlace":
        """The folder ``parts`` below this one."""
        return LocalPlace(self.path.joinpath(*parts))

    def exists(self) -> bool:
        """Whether the folder or file exists."""
        return self.path.exists()

    def has_file(self, name: str) -> bool:
        """Whether the file ``name`` exists and is not empty."""
        file = self.path / name
        return file.is_file() and file.stat().st_size > 0

    def has_folder(self, name: str) -> bool:
        """Whether the folder ``name`` exists."""
        return (self.path / name).exists()

    def read(self, name: str) -> bytes:
        """All bytes of the file ``name``."""
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a temporary file in the same folder and rename it."""
        with self.stage(name) as partial:
            partial.write_bytes(content)

    def open(self, name: str) -> BinaryIO:
        """Open a regular file: a pipe would be waited for."""
        with open_regular_file(self.path / name):
            return (self.path / name).open("rb")

    @contextmanager
    def stage(self, name: str) -> Iterator[Path]:
        """Write a temporary file in the same folder and rename it; see ``Place.stage``."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with staging.stage_file(file) as partial:
            yield partial

    def list_folders(self) -> list[str]:
        """The names of the folders directly below."""
        folders = (path.name for path in self.path.glob("*/"))
        return sorted(name for name in folders if not staging.UNFINISHED.search(name))

    def refuse_link(self) -> None:
        """Refuse a folder that is a link; see ``Place.refuse_link``."""
        if self.path.is_symlink() and (self.path.is_dir() or not self.path.exists()):
            raise UserError(
                f"{self.path} is a link to {self.path.readlink()}, whose target is never replaced or deleted; "
                "remove the link, or put the folder itself in its place (ATTENTION_GEOMETRY_TENSORS and "
                "ATTENTION_GEOMETRY_METRICS can put the stores of all studies on another disk)"
            )

    def create(self, build: Callable[[Path], None]) -> None:
        """Build a group in a temporary folder next to this one and rename it; see ``Place.create``."""
        self.refuse_link()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = staging.make_staging_path(self.path)
        try:
            build(partial)
            with suppress(FileExistsError):
                staging.rename_folder(partial, self.path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def remove(self) -> None:
        """Delete it; a folder is renamed first, so that it is either complete or absent."""
        self.refuse_link()
        if self.path.is_dir() and not staging.UNFINISHED.search(self.path.name):
            staging.delete(self.path.rename(staging.make_staging_path(self.path)))
        else:
            staging.delete(self.path)

    def set_aside(self) -> Path | None:
        """Rename the folder; see ``Place.set_aside``."""
        self.refuse_link()
        return staging.set_aside(self.path) if self.path.exists() else None

    def discard_replaced(self) -> None:
        """Remove the copies that ``set_aside`` renamed."""
        staging.discard_replaced(self.path)

    def remove_leftovers(self) -> None:
        """Remove half-written files and folders; see ``Place.remove_leftovers``."""
        staging.remove_leftovers(self.path)
        for leftover in staging.list_leftovers(self.path):
            staging.delete(leftover)

    def measure_size(self) -> int:
        """Bytes of all files."""
        total = 0
        for file in (self.path, *self.path.rglob("*")):
            with suppress(FileNotFoundError):  # another process may rename its files meanwhile
                total += file.stat().st_size if file.is_file() else 0
        return total

    def measure_free_space(self) -> int:
        """Bytes that can still be written here, or in the nearest folder above it."""
        return shutil.disk_usage(self._find_nearest_folder()).free

    def is_on_same_disk(self, other: Place) -> bool:
        """Whether the other is a folder on the same disk."""
        return (
            isinstance(other, LocalPlace)
            and self._find_nearest_folder().stat().st_dev == other._find_nearest_folder().stat().st_dev
        )

    def open_zarr(self) -> Path:
        """The path."""
        return self.path

    def _find_nearest_folder(self) -> Path:
        """The nearest existing folder: this one, or one above it."""
        absolute = self.path.absolute()
        return next(folder for folder in (absolute, *absolute.parents) if folder.exists())


@dataclass(frozen=True)
class RemotePlace:
    """A prefix of an object store; its credentials come from the environment and are not part of it."""

    url: str
    """Scheme, bucket and prefix without a slash at the end; a URL that ``parse_place`` accepted."""
    is_remote = True

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "RemotePlace":
        """The prefix above it."""
        return RemotePlace(self.url.rsplit("/", 1)[0])

    def join(self, *parts: str) -> "RemotePlace":
        """The prefix ``parts`` below this one."""
        return RemotePlace("/".join((self.url, *parts)))

    def exists(self) -> bool:
        """Whether the document of the group exists, which is written last, or there are folders of parts."""
        from storage.files import objects

        return objects.exists(self.url, "zarr.json") or any(map(OF_PARTS.search, self.list_folders()))

    def has_file(self, name: str) -> bool:
        """Whether the object ``name`` exists and is not empty."""
        from storage.files import objects

        return objects.has_object(self.url, name)

    def has_folder(self, name: str) -> None:
        """Return None: an object store has no folders."""

    def read(self, name: str) -> bytes:
        """All bytes of the object ``name``."""
        from storage.files import objects

        return objects.read(self.url, name)

    def write(self, name: str, content: bytes) -> None:
        """Write the object ``name``."""
        from storage.files import objects

        objects.write(self.url, name, content)

    def open(self, name: str) -> BinaryIO:
        """Open the object ``name``, which is requested in pieces."""
        from storage.files import objects

        return objects.open_object(self.url, name)

    @contextmanager
    def stage(self, name: str) -> Iterator[Path]:
        """Upload a temporary file; see ``Place.stage``."""
        from storage.files import objects

        with TemporaryDirectory() as folder:
            yield (partial := Path(folder) / name)
            objects.upload(partial, self.url, name)

    def list_folders(self) -> list[str]:
        """The prefixes directly below."""
        from storage.files import objects

        return objects.list_folders(self.url)

    def create(self, build: Callable[[Path], None]) -> None:
        """Build a group in a temporary folder and upload its documents; see ``Place.create``."""
        from storage.files import objects

        with TemporaryDirectory() as folder:
            build(Path(folder))
            objects.publish(Path(folder), self.url)

    def remove(self) -> None:
        """Delete all objects: the ledger first, the group's document before those of its arrays."""
        from storage.files import objects

        objects.remove(self.url)

    def refuse_link(self) -> None:
        """Do nothing: an object store has no links."""

    def set_aside(self) -> None:
        """Remove the store, since an object store cannot rename."""
        self.remove()

    def discard_replaced(self) -> None:
        """Do nothing: an object store cannot rename, so nothing was set aside."""

    def remove_leftovers(self) -> None:
        """Do nothing: an object is either complete or absent."""

    def measure_size(self) -> int:
        """Bytes of all objects."""
        from storage.files import objects

        return objects.measure_size(self.url)

    def measure_free_space(self) -> None:
        """Return None: an object store states no limit."""

    def is_on_same_disk(self, other: Place) -> bool:  # noqa: ARG002 (no folder does)
        """Return False: an object store is not a folder."""
        return False

    def open_zarr(self) -> Any:
        """Zarr's view of the prefix."""
        from storage.files import objects

        return objects.open_zarr(self.url)


def parse_place(text: str) -> LocalPlace | RemotePlace:
    """The place that ``text`` names: a URL of one of the ``SCHEMES``, or a path.

    Raises
    ------
    UserError
        If it is a path that cannot be used, or a URL of another scheme, without a bucket, or with a user, a password or
        a query, which the message does not repeat.
    """
    if "://" not in text:
        return LocalPlace(resolve_path(text))
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UserError(
            f"The URL begins with '{scheme}://', which is not a supported object store; name a folder, or {known}"
        )
    if "@" in rest or "?" in rest or "#" in rest:
        msg = (
            f"The {scheme}:// URL has more than a bucket and a prefix (one of @ ? #); "
            "credentials and options belong in the environment, such as AWS_ACCESS_KEY_ID"
        )
        raise UserError(msg)
    if not urlsplit(text).netloc:
        raise UserError(f"The URL '{text}' names no bucket; write {scheme}://BUCKET/PREFIX")
    return RemotePlace(text.rstrip("/"))
