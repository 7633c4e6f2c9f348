"""Places in object stores, through obstore, with errors of one line.

Contains the client, Zarr's view of it, and the translation of errors; no other module imports obstore. This module is
imported only when a place is in an object store; if obstore is not installed, the import raises a UserError.

Responses of object stores repeat the caller's key id, so messages quote only their status and error code, never their
text.
"""

import io
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from zarr.storage import ObjectStore

from storage.errors import UserError
from storage.files.places import OF_PARTS, Place

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


@dataclass(frozen=True)
class RemotePlace(Place):
    """A prefix of an object store; its credentials come from the environment and are not part of it."""

    url: str
    """Scheme, bucket and prefix without a slash at the end; a URL that ``parse_place`` accepted."""

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "RemotePlace":
        return RemotePlace(self.url.rsplit("/", 1)[0])

    def join(self, *parts: str) -> "RemotePlace":
        return RemotePlace("/".join((self.url, *parts)))

    def exists(self) -> bool:
        """Whether the document of the group exists, which is written last, or there are folders of parts."""
        return self._measure_object(GROUP) is not None or any(map(OF_PARTS.search, self.list_folders()))

    def has_file(self, name: str) -> bool:
        return bool(self._measure_object(name))

    def _measure_object(self, name: str) -> int | None:
        """Bytes of the object ``name``; None if there is none."""
        try:
            with self._use_client() as client:
                return obstore.head(client, name)["size"]
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        with self._use_client() as client:
            return bytes(obstore.get(client, name).bytes())

    def open(self, name: str) -> BinaryIO:
        with self._use_client() as client:
            length = obstore.head(client, name)["size"]
        return io.BufferedReader(_RawObject(self.url, name, length), PIECE)

    @contextmanager
    def stage(self, name: str) -> Iterator[Path]:
        with TemporaryDirectory() as folder:
            yield (partial := Path(folder) / name)
            with self._use_client() as client:
                obstore.put(client, name, partial)

    def list_folders(self) -> list[str]:
        with self._use_client() as client:
            return sorted(prefix.rstrip("/") for prefix in obstore.list_with_delimiter(client)["common_prefixes"])

    def create(self, build: Callable[[Path], None]) -> None:
        with TemporaryDirectory() as name:
            build(folder := Path(name))
            documents = {file.relative_to(folder).as_posix(): file for file in folder.rglob(GROUP)}
            group = documents.pop(GROUP)
            with self._use_client() as client:
                for document, file in documents.items():
                    obstore.put(client, document, file)
                with suppress(obstore.exceptions.AlreadyExistsError):
                    obstore.put(client, GROUP, group, mode="create")

    def remove(self) -> None:
        """Delete all objects: the ledger's chunks first, then others, the group's document, those of its arrays."""
        with self._use_client() as client:
            for rank in range(4):
                for page in obstore.list(client):
                    if names := [entry["path"] for entry in page if _compute_removal_rank(entry["path"]) == rank]:
                        obstore.delete(client, names)

    def measure_size(self) -> int:
        with self._use_client() as client:
            return sum(entry["size"] for page in obstore.list(client) for entry in page)

    def open_zarr(self) -> GuardedStore:
        return GuardedStore(_open_client(self.url), url=self.url)

    @contextmanager
    def _use_client(self) -> Iterator[Client]:
        """The client of the prefix; errors inside the context are those of ``translate_errors``."""
        with translate_errors(self.url):
            yield _open_client(self.url)


def _compute_removal_rank(name: str) -> int:
    """Position of an object in the order of removal."""
    if name == GROUP:
        return 2
    if name.endswith(f"/{GROUP}"):
        return 3
    return 0 if name.startswith("finished/") else 1


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


def _open_client(url: str) -> Client:
    """The client of the prefix ``url``, made once for each environment; ``UserError`` if that lacks what it needs."""
    return _make_client(url, tuple(sorted(item for item in os.environ.items() if item[0].startswith(PREFIXES))))


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
            raise FileNotFoundError("there is no such object") from None
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
