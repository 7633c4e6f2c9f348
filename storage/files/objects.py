"""Object stores through obstore: the few operations a store needs, with errors that say what is wrong in one line.

Holds the client, Zarr's view of it, and the translation of errors; nothing else imports obstore. It is imported where a
place turns out to be in an object store; without obstore that is a UserError.

Answers of object stores repeat the caller's key id, so that no text of theirs gets into a message but their status and
their error code.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from storage.errors import UserError

if TYPE_CHECKING:
    from storage.files.places import Part

try:
    import obstore
    from obstore.store import ObjectStore as Client
    from obstore.store import from_url
except ModuleNotFoundError as missing:
    lacks = "Object stores are reached through obstore, which is not installed; install attention-geometry[remote]"
    raise UserError(lacks) from missing


PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")
"""What names of environment variables begin with that obstore reads."""

MOST_RETRIES = 8
"""How often a request is made again, with waits that double from 0.1 s to 15 s: half a minute in all."""

PIECE = 8 * 2**20
"""Bytes that are sent at a time; at most ``PIECES`` of them wait in memory."""

PIECES = 4

NO_BUCKET = "NoSuchBucket|ContainerNotFound"
"""What an object store answers whose bucket is missing."""

TOO_SHORT = "status code: 416|non-partial response"
"""What is answered where an object does not have the bytes asked for; the latter where it has none."""

GROUP = "zarr.json"
"""The document that makes a prefix a Zarr group; a store's is written last."""


class GuardedStore(ObjectStore[Client]):
    """Zarr's view of one prefix, whose errors are those of ``understandable``."""

    def __init__(self, store: Client, *, read_only: bool = False, url: str) -> None:
        super().__init__(store, read_only=read_only)
        self.url = url

    def with_read_only(self, read_only: bool = False) -> "GuardedStore":
        """The same prefix, opened for reading alone or not."""
        return type(self)(self.store, read_only=read_only, url=self.url)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Bytes of the object ``key``, or None."""
        with understandable(self.url):
            return await super().get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Bytes of parts of objects."""
        with understandable(self.url):
            return await super().get_partial_values(prototype, key_ranges)

    async def exists(self, key: str) -> bool:
        """Whether there is an object ``key``."""
        with understandable(self.url):
            return await super().exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Write the object ``key`` whole, or not at all."""
        with understandable(self.url):
            await super().set(key, value)

    async def delete(self, key: str) -> None:
        """Delete the object ``key``."""
        with understandable(self.url):
            await super().delete(key)


def view(url: str) -> GuardedStore:
    """Zarr's view of the prefix ``url``."""
    return GuardedStore(_client(url), url=url)


def exists(url: str, key: str) -> bool:
    """Whether the object ``key`` stands below ``url``, in a bucket that there is."""
    if _length(url, key) is not None:
        return True
    with understandable(url):  # asked for one object, an object store does not say that its bucket is missing
        next(iter(obstore.list(_client(url))), None)
    return False


def holds(url: str, key: str) -> bool:
    """Whether the object ``key`` stands below ``url`` and is not empty."""
    return bool(_length(url, key))


def _length(url: str, key: str) -> int | None:
    """Bytes of the object ``key`` below ``url``; None if there is none."""
    try:
        with understandable(url):
            return obstore.head(_client(url), key)["size"]
    except FileNotFoundError:
        return None


def read(url: str, key: str) -> bytes:
    """All bytes of the object ``key`` below ``url``; ``FileNotFoundError`` if it is missing."""
    with understandable(url):
        return bytes(obstore.get(_client(url), key).bytes())


def write(url: str, name: str, parts: "Iterable[Part]", size: int) -> None:
    """Write the object ``name`` below ``url`` whole, or not at all; one of many bytes is sent in pieces.

    A process that is killed in between leaves pieces that only the object store knows; see its rules for uploads that
    are never completed.
    """
    with understandable(url):
        obstore.put(
            _client(url),
            name,
            iter(parts) if size > PIECE else b"".join(parts),
            chunk_size=PIECE,
            max_concurrency=PIECES,
        )


def publish(folder: Path, url: str) -> None:
    """Write the documents of the empty Zarr group in ``folder`` below ``url``, the group's own last.

    Where a group stands already, it stays.
    """
    client = _client(url)
    documents = sorted(file.relative_to(folder).as_posix() for file in folder.rglob(GROUP))
    with understandable(url):
        for name in documents:
            if name != GROUP:
                obstore.put(client, name, folder / name)
        try:
            obstore.put(client, GROUP, folder / GROUP, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return


def remove(url: str) -> None:
    """Remove everything below ``url``: the ledger's chunks, all other chunks, the group's document, the arrays'."""
    client = _client(url)
    with understandable(url):
        for rank in range(4):
            for found in obstore.list(client):
                if names := [entry["path"] for entry in found if _rank(entry["path"]) == rank]:
                    obstore.delete(client, names)


def _rank(name: str) -> int:
    """When an object is removed."""
    if name == GROUP:
        return 2
    if name.endswith(f"/{GROUP}"):
        return 3
    return 0 if name.startswith("finished/") else 1


def size(url: str) -> int:
    """Bytes of all objects below ``url``."""
    with understandable(url):
        return sum(entry["size"] for found in obstore.list(_client(url)) for entry in found)


def _client(url: str) -> Client:
    """The client of the prefix ``url``, configured by the environment as it is now; made once.

    Raises
    ------
    UserError
        If the environment lacks what the object store needs.
    """
    settings = ((name, value) for name, value in os.environ.items() if name.startswith(PREFIXES))
    return _made(url, tuple(sorted(settings)))


@lru_cache(maxsize=16)
def _made(url: str, _environment: tuple[tuple[str, str], ...]) -> Client:
    with understandable(url):
        return from_url(url, retry_config={"max_retries": MOST_RETRIES})


@contextmanager
def understandable(url: str) -> Iterator[None]:
    """Raise errors of the object store at ``url`` as UserErrors of one line, without what the store answered.

    ``FileNotFoundError`` passes where an object is missing; where a bucket is, it is a UserError. An object that is
    shorter than what is asked of it is a ``ValueError``, like other damage.
    """
    try:
        yield
    except (obstore.exceptions.BaseError, FileNotFoundError, PermissionError) as error:
        if isinstance(error, FileNotFoundError) and not re.search(NO_BUCKET, str(error)):
            raise
        if re.search(TOO_SHORT, str(error)):
            short = "an object is shorter than it was"
            raise ValueError(short) from None
        msg = f"The object store at {url} {_reason(str(error))}"
        raise UserError(msg) from None


_REASONS = (
    (NO_BUCKET, "has no such bucket; make it, or name another"),
    (
        r"latest/api/token|169\.254\.169\.254|metadata\.google|Account must be specified|missing credential",
        "needs credentials; set those of its kind, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (r"\b(401|403)\b", "refuses these credentials{detail}; see that they are right and may read and write there"),
    (
        r"error sending request|dns error|Connect|timed? ?out",
        "cannot be reached; see that the network and its address, such as AWS_ENDPOINT_URL, are right and run again",
    ),
)
"""What an answer says, by the first pattern found in it."""


def _reason(answer: str) -> str:
    """What is wrong and what to do, in words that are ours."""
    status = re.search(r"status code: (\d{3})", answer)
    code = re.search(r"<Code>(\w{1,64})</Code>", answer)
    said = " ".join(found.group(1) for found in (status, code) if found)
    detail = f" ({said})" if said else ""
    for pattern, reason in _REASONS:
        if re.search(pattern, answer):
            return reason.format(detail=detail)
    return f"failed{detail}; what was written stays, run again to continue"
