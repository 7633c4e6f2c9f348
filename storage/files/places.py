"""Where a store lies: a folder, or a prefix of an object store such as ``s3://bucket/folder``.

Holds ``Remote``, the address in an object store, and what can be done alike with both kinds of place. What does not
belong here: what a store holds (``storage.zarr.sequences``) and talking to object stores (``storage.files.objects``).
"""

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from storage.errors import UserError
from storage.files.staging import beside

if TYPE_CHECKING:
    from storage.zarr.shards import Part

SCHEMES = ("s3", "gs", "az")
"""Object stores by the scheme of their URLs: Amazon S3 and what speaks its protocol, Google, Azure."""

AT_ONCE = 2**20
"""Bytes from which on a part goes to the disk at once; fewer wait for more."""


@dataclass(frozen=True)
class Remote:
    """A place in an object store; its credentials come from the environment and are no part of it."""

    url: str
    """Scheme, bucket and prefix without a slash at the end; a URL that ``place`` has found good."""

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[-1]

    def exists(self) -> bool:
        """Whether a store stands here: whether its group has its document, which is written last.

        Raises
        ------
        UserError
            If the object store does not answer, or not to these credentials.
        """
        from storage.files import objects

        return objects.exists(self.url, "zarr.json")


Place = Path | Remote
"""Where a store lies; both kinds have ``exists()``, ``name`` and ``str()``."""


def place(text: str) -> Place:
    """The place that ``text`` names: a URL of one of the ``SCHEMES``, or a path.

    Raises
    ------
    UserError
        If it is a URL of another scheme, without a bucket, or with a user, a password or a query; none is repeated.
    """
    if "://" not in text:
        return Path(text)
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        msg = f"The URL begins with '{scheme}://', which no object store here does; name a folder, or one of {known}"
        raise UserError(msg)
    if "@" in rest or "?" in rest or "#" in rest:
        msg = (
            f"The {scheme}:// URL has more than a bucket and a prefix (one of @ ? #); "
            "credentials and options belong in the environment, such as AWS_ACCESS_KEY_ID"
        )
        raise UserError(msg)
    if not urlsplit(text).netloc:
        msg = f"The URL '{text}' names no bucket; write {scheme}://BUCKET/PREFIX"
        raise UserError(msg)
    return Remote(text.rstrip("/"))


def joined(root: Place, *parts: str) -> Place:
    """The place ``parts`` below ``root``."""
    return root.joinpath(*parts) if isinstance(root, Path) else Remote("/".join((root.url, *parts)))


def write(store: Place, name: str, parts: Iterable["Part"], size: int) -> None:
    """Write ``parts`` to a file of a store, which is there whole or as it was before.

    Parameters
    ----------
    store
        Where the store lies.
    name
        The file, from there; folders on its way are made.
    parts
        Its bytes, in order; each is taken when those before it have been written.
    size
        About how many there are.

    Raises
    ------
    OSError
        If the disk does not take them.
    UserError
        If an object store does not take them, or another process removes what is being written.
    """
    if isinstance(store, Remote):
        from storage.files import objects

        objects.write(store.url, name, parts, size)
        return
    file = store / name
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(file)
    try:
        with aside.open("wb") as opened:
            for part in parts:
                opened.write(part)
                _to_disk(opened, len(part))
        aside.replace(file)
    except FileNotFoundError as error:
        msg = f"Another process has removed what was being written of {store}; see that none does, and run again"
        raise UserError(msg) from error
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def holds(store: Place, name: str) -> bool:
    """Whether a file of a store is there and not empty.

    Raises
    ------
    UserError
        If an object store does not answer, or not to these credentials.
    """
    if isinstance(store, Remote):
        from storage.files import objects

        return objects.holds(store.url, name)
    file = store / name
    return file.is_file() and file.stat().st_size > 0


def _to_disk(file: BinaryIO, size: int) -> None:
    """Have the system begin to bring the last ``size`` bytes to the disk, where it can be asked to.

    It would wait until there are many, or until the file is synchronised; so, the disk works while the next part is
    made, and a file is there 1.3 times sooner.
    """
    if size >= AT_ONCE and sys.platform == "linux":
        os.posix_fadvise(file.fileno(), file.tell() - size, size, os.POSIX_FADV_DONTNEED)


def remove(place: Place) -> None:
    """Remove the store at ``place``, if there is one.

    A folder is renamed first, so that it is whole or gone. An object store cannot rename: the ledger is emptied first
    and the group's document goes before those of its arrays, so that a process killed in between leaves a store without
    sequences, or none.

    Raises
    ------
    UserError
        If an object store does not answer, or not to these credentials.
    """
    if isinstance(place, Remote):
        from storage.files import objects

        objects.remove(place.url)
    elif place.exists():
        shutil.rmtree(place.rename(beside(place)))


def bytes_on_disk(place: Place) -> int:
    """Bytes of all files, or of all objects, at ``place``; 0 if there are none.

    Raises
    ------
    UserError
        If an object store does not answer, or not to these credentials.
    """
    if isinstance(place, Remote):
        from storage.files import objects

        return objects.size(place.url)
    total = 0
    for file in place.rglob("*"):
        with suppress(FileNotFoundError):  # another process renames what it has written
            total += file.stat().st_size if file.is_file() else 0
    return total
