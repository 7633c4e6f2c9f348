"""Places of stores: a folder, or a prefix of an object store such as ``s3://bucket/folder``.

Stores work the same way in either; ``storage.files.objects`` has the places of object stores.
"""

import errno
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from storage.errors import UserError
from storage.files import staging
from storage.files.user_paths import open_regular_file

OF_PARTS = re.compile(r"-[0-9a-f]{12}$")
"""The digest at the end of the name of a folder of parts (``storage.files.parts``)."""


class Place(ABC):
    """The location of one store, of a part of it, or of the stores of all studies.

    What has a body here is what an object store does, which has no folders, links or disk, and writes whole objects.
    Operations on one raise ``UserError`` if it does not answer or refuses the credentials.
    """

    is_remote = True
    """Whether it may be temporarily unreachable."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path or URL."""

    @property
    @abstractmethod
    def parent(self) -> "Place":
        """The place above it."""

    @abstractmethod
    def join(self, *parts: str) -> Self:
        """The place ``parts`` below this one."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether a store exists at this place."""

    @abstractmethod
    def has_file(self, name: str) -> bool:
        """Whether the file ``name`` of the store exists and is not empty."""

    def has_folder(self, name: str) -> bool | None:  # noqa: ARG002 (nor any other)
        """Whether the folder ``name`` of the store exists; None if the place has no folders."""
        return None

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All bytes of the file ``name`` of the store; ``FileNotFoundError`` if it is missing."""

    def write(self, name: str, content: bytes) -> None:
        """Write a small file next to the arrays of the store atomically; missing folders are created."""
        with self.stage(name) as partial:
            partial.write_bytes(content)

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open the file ``name`` to read parts of it; ``FileNotFoundError`` if it is missing."""

    @abstractmethod
    def stage(self, name: str) -> AbstractContextManager[Path]:
        """Yield a path for a large file, which becomes the file ``name`` atomically after the context."""

    @abstractmethod
    def list_folders(self) -> list[str]:
        """The names of the folders directly below, ascending, without unfinished ones."""

    @abstractmethod
    def create(self, build: Callable[[Path], None]) -> None:
        """Publish the empty Zarr group that ``build`` makes in a folder; a group that exists already is kept."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the store, if it exists; a process killed meanwhile leaves no store, or one without sequences."""

    def refuse_link(self) -> None:
        """Raise ``UserError`` if the place is a link to a folder: links are read and written, but never replaced."""
        return

    def set_aside(self) -> Path | None:
        """Make room for a new store: rename this one and return its folder, or remove it if renaming is impossible.

        None if there is no copy that could be restored.
        """
        self.remove()
        return None

    def discard_replaced(self) -> None:
        """Remove the copies that ``set_aside`` renamed, in this or in a killed process."""
        return

    def remove_leftovers(self) -> None:
        """Remove half-written files of killed processes in the store and next to it; no other process may write."""
        return

    @abstractmethod
    def measure_size(self) -> int:
        """Bytes of all files or objects of the store; 0 if there are none."""

    def measure_free_space(self) -> int | None:
        """Bytes that can still be written; None for an object store."""
        return None

    def is_on_same_disk(self, other: "Place") -> bool:  # noqa: ARG002 (nor any other)
        """Whether both are folders on the same disk."""
        return False

    @abstractmethod
    def open_zarr(self) -> Any:
        """The path or Zarr store by which Zarr opens it."""


@dataclass(frozen=True)
class LocalPlace(Place):
    """A folder of this machine, or a file; what is replaced is written under another name and renamed."""

    path: Path
    is_remote = False

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> "LocalPlace":
        return LocalPlace(self.path.parent)

    def join(self, *parts: str) -> "LocalPlace":
        return LocalPlace(self.path.joinpath(*parts))

    def exists(self) -> bool:
        return self.path.exists()

    def has_file(self, name: str) -> bool:
        file = self.path / name
        return file.is_file() and file.stat().st_size > 0

    def has_folder(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        return open_regular_file(self.path / name)  # a pipe would be waited for

    @contextmanager
    def stage(self, name: str) -> Iterator[Path]:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with staging.stage_file(file) as partial:
            yield partial

    def list_folders(self) -> list[str]:
        folders = (path.name for path in self.path.glob("*/"))
        return sorted(name for name in folders if not staging.UNFINISHED.search(name))

    def refuse_link(self) -> None:
        if self.path.is_symlink() and (self.path.is_dir() or not self.path.exists()):
            raise UserError(
                f"{self.path} is a link to {self.path.readlink()}, whose target is never replaced or deleted; "
                "remove the link, or put the folder itself in its place (ATTENTION_GEOMETRY_TENSORS and "
                "ATTENTION_GEOMETRY_METRICS can put the stores of all studies on another disk)"
            )

    def create(self, build: Callable[[Path], None]) -> None:
        self.refuse_link()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = staging.make_staging_path(self.path)
        try:
            build(partial)
            try:
                partial.rename(self.path)
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:  # systems report either if it is there
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def remove(self) -> None:
        self.refuse_link()
        if self.path.is_dir() and not staging.UNFINISHED.search(self.path.name):
            staging.delete(self.path.rename(staging.make_staging_path(self.path)))
        else:
            staging.delete(self.path)

    def set_aside(self) -> Path | None:
        self.refuse_link()
        return staging.set_aside(self.path) if self.path.exists() else None

    def discard_replaced(self) -> None:
        staging.discard_replaced(self.path)

    def remove_leftovers(self) -> None:
        staging.remove_leftovers(self.path)
        for path in sorted(self.path.rglob("*.partial")):
            if staging.UNFINISHED.search(path.name):
                staging.delete(path)

    def measure_size(self) -> int:
        total = 0
        for file in (self.path, *self.path.rglob("*")):
            with suppress(FileNotFoundError):  # another process may rename its files meanwhile
                total += file.stat().st_size if file.is_file() else 0
        return total

    def measure_free_space(self) -> int:
        return shutil.disk_usage(self._find_nearest_folder()).free

    def is_on_same_disk(self, other: Place) -> bool:
        return (
            isinstance(other, LocalPlace)
            and self._find_nearest_folder().stat().st_dev == other._find_nearest_folder().stat().st_dev
        )

    def open_zarr(self) -> Path:
        return self.path

    def _find_nearest_folder(self) -> Path:
        """The nearest existing folder: this one, or one above it."""
        absolute = self.path.absolute()
        return next(folder for folder in (absolute, *absolute.parents) if folder.exists())
