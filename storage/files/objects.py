"""Object stores through obstore: the few operations that a store needs, with errors of one line.

Contains the client, Zarr's view of it, and the translation of errors; no other module imports obstore. This module is
imported only when a place is in an object store; if obstore is not installed, the import raises a UserError.

Responses of object stores repeat the caller's key id, so messages quote only their status and error code, never their
text.
"""

import io
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, BinaryIO

from zarr.storage import ObjectStore

from storage.errors import UserError

try:
    import obstore
    from obstore.store import ObjectStore as Client
    from obstore.store import from_url
except ModuleNotFoundError as missing:
    lacks = "Object stores are reached through obstore, which is not installed; install attention-geometry[remote]"
    raise UserError(lacks) from missing


PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")
"""Prefixes of the environment variables that obstore reads."""

PIECE = 2**18
"""Bytes of an object that are requested at once, if it is read in smaller pieces."""

MOST_RETRIES = 8
"""How often a failed request is repeated, with waits that double from 0.1 s to 15 s: half a minute in all."""

NO_BUCKET = "NoSuchBucket|ContainerNotFound"
"""What an object store answers if the bucket does not exist."""

TOO_SHORT = "status code: 416|non-partial response"
"""What is answered if an object does not have the requested bytes; the latter if it is empty."""

GROUP = "zarr.json"
"""The document that makes a prefix a Zarr group; that of a store is written last."""


def _guard(method: Callable[..., Awaitable[Any]]) -> Any:
    """A method of a store whose errors are those of ``translate_errors``."""

    @wraps(method)
    async def guarded(store: "GuardedStore", *given: Any, **options: Any) -> Any:
        with translate_errors(store.url):
            return await method(store, *given, **options)

    return guarded


class GuardedStore(ObjectStore[Client]):
    """Zarr's view of one prefix, whose errors are those of ``translate_errors``."""

    def __init__(self, store: Client, *, read_only: bool = False, url: str) -> None:
        super().__init__(store, read_only=read_only)
        self.url = url

    def with_read_only(self, read_only: bool = False) -> "GuardedStore":
        """The same prefix, opened read-only or not."""
        return type(self)(self.store, read_only=read_only, url=self.url)

    get, get_partial_values = _guard(ObjectStore.get), _guard(ObjectStore.get_partial_values)
    exists, set, delete = _guard(ObjectStore.exists), _guard(ObjectStore.set), _guard(ObjectStore.delete)


def open_zarr(url: str) -> GuardedStore:
    """Zarr's view of the prefix ``url``."""
    return GuardedStore(_open_client(url), url=url)


def exists(url: str, key: str) -> bool:
    """Whether the object ``key`` exists below ``url``; a bucket that does not exist is a ``UserError``."""
    if _read_length(url, key) is not None:
        return True
    with translate_errors(url):  # a request for one object does not reveal that the bucket is missing
        next(iter(obstore.list(_open_client(url))), None)
    return False


def has_object(url: str, key: str) -> bool:
    """Whether the object ``key`` exists below ``url`` and is not empty."""
    return bool(_read_length(url, key))


def _read_length(url: str, key: str) -> int | None:
    """Bytes of the object ``key`` below ``url``; None if there is none."""
    try:
        with translate_errors(url):
            return obstore.head(_open_client(url), key)["size"]
    except FileNotFoundError:
        return None


def read(url: str, key: str) -> bytes:
    """All bytes of the object ``key`` below ``url``; ``FileNotFoundError`` if it is missing."""
    with translate_errors(url):
        return bytes(obstore.get(_open_client(url), key).bytes())


def write(url: str, name: str, content: bytes) -> None:
    """Write the object ``name`` below ``url`` atomically."""
    with translate_errors(url):
        obstore.put(_open_client(url), name, content)


def upload(file: Path, url: str, name: str) -> None:
    """Write a file of this machine as the object ``name`` below ``url``, atomically."""
    with translate_errors(url):
        obstore.put(_open_client(url), name, file)


def list_folders(url: str) -> list[str]:
    """The names of the prefixes directly below ``url``, ascending."""
    with translate_errors(url):
        return sorted(
            prefix.rstrip("/") for prefix in obstore.list_with_delimiter(_open_client(url))["common_prefixes"]
        )


def open_object(url: str, name: str) -> BinaryIO:
    """Open the object ``name`` below ``url``, which is requested in pieces of ``PIECE`` bytes or more."""
    with translate_errors(url):
        length = obstore.head(_open_client(url), name)["size"]
    raw = _RawObject(url, name, length)
    return io.BufferedReader(raw, PIECE)


class _RawObject(io.RawIOBase):
    """An object as a file whose parts are requested as they are read."""

    def __init__(self, url: str, name: str, length: int) -> None:
        self._url, self._name, self._length, self._position = url, name, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._length - self._position)
        if size > 0:
            with translate_errors(self._url):
                part = obstore.get_range(_open_client(self._url), self._name, start=self._position, length=size)
            buffer[:size] = bytes(part)
            self._position += size
        return max(size, 0)


def publish(folder: Path, url: str) -> None:
    """Write the documents of the empty Zarr group in ``folder`` below ``url``, the group's own last.

    A group that exists already is kept.
    """
    client = _open_client(url)
    documents = sorted(file.relative_to(folder).as_posix() for file in folder.rglob(GROUP))
    with translate_errors(url):
        for name in documents:
            if name != GROUP:
                obstore.put(client, name, folder / name)
        try:
            obstore.put(client, GROUP, folder / GROUP, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return


def remove(url: str) -> None:
    """Remove everything below ``url``: the ledger's chunks first, then others, the group's document, the arrays'."""
    client = _open_client(url)
    with translate_errors(url):
        for rank in range(4):
            for page in obstore.list(client):
                if names := [entry["path"] for entry in page if _compute_removal_rank(entry["path"]) == rank]:
                    obstore.delete(client, names)


def _compute_removal_rank(name: str) -> int:
    """Position of an object in the order of removal."""
    if name == GROUP:
        return 2
    if name.endswith(f"/{GROUP}"):
        return 3
    return 0 if name.startswith("finished/") else 1


def measure_size(url: str) -> int:
    """Bytes of all objects below ``url``."""
    with translate_errors(url):
        return sum(entry["size"] for page in obstore.list(_open_client(url)) for entry in page)


def _open_client(url: str) -> Client:
    """The client of the prefix ``url``, made once for each environment; ``UserError`` if that lacks what it needs."""
    settings = ((name, value) for name, value in os.environ.items() if name.startswith(PREFIXES))
    return _make_client(url, tuple(sorted(settings)))


@lru_cache(maxsize=16)
def _make_client(url: str, _environment: tuple[tuple[str, str], ...]) -> Client:
    with translate_errors(url):
        return from_url(url, retry_config={"max_retries": MOST_RETRIES})


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Raise errors of the object store at ``url`` as UserErrors of one line, without the store's response.

    A missing object remains a ``FileNotFoundError``; a missing bucket is a UserError. An object that is shorter than
    the requested range is a ``ValueError``, like other damage.
    """
    try:
        yield
    except (obstore.exceptions.BaseError, FileNotFoundError, PermissionError) as error:
        if isinstance(error, FileNotFoundError) and not re.search(NO_BUCKET, str(error)):
            raise
        if re.search(TOO_SHORT, str(error)):
            short = "an object is shorter than when it was written"
            raise ValueError(short) from None
        raise UserError(f"The object store at {url} {_describe_failure(str(error))}") from None


_REASONS = (
    (NO_BUCKET, "has no such bucket; create it, or name another"),
    (
        r"latest/api/token|169\.254\.169\.254|metadata\.google|Account must be specified|missing credential",
        "needs credentials; set them in the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (r"\b(401|403)\b", "refuses these credentials{detail}; check that they are correct and may read and write there"),
    (
        r"error sending request|dns error|Connect|timed? ?out",
        "cannot be reached; check the network and the address, such as AWS_ENDPOINT_URL, and run again",
    ),
)
"""What is wrong and what to do, by the first pattern found in a response."""


def _describe_failure(answer: str) -> str:
    """Describe what is wrong and what to do, without quoting the response."""
    status = re.search(r"status code: (\d{3})", answer)
    code = re.search(r"<Code>(\w{1,64})</Code>", answer)
    said = " ".join(match.group(1) for match in (status, code) if match)
    detail = f" ({said})" if said else ""
    for pattern, reason in _REASONS:
        if re.search(pattern, answer):
            return reason.format(detail=detail)
    return f"failed{detail}; what was written stays, run again to continue"
