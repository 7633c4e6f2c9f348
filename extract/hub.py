"""What models and corpora share: ids, hashes of files, log output and error messages of the Hugging Face libraries.

Importing this module loads none of these libraries.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, suppress
from functools import lru_cache, wraps
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TypeVar

logger = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds in which the hub must answer."""

_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")


def is_local_id(name: str) -> bool:
    """Whether an id is a local path: because it exists, by its form, or because the hub allows no such id."""
    if name[0] in "./~" or exists(name):
        return True
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return True
    return False


def exists(name: str) -> bool:
    """Whether there is such a path; False if it cannot be accessed or is too long for a path."""
    try:
        return expand_path(name).exists()
    except (OSError, ValueError):
        return False


def expand_path(name: str) -> Path:
    """The id as a path, with a leading ``~`` replaced by the home directory if there is one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~NAME of a user that does not exist
        return Path(name)


def is_hub_reachable() -> bool:
    """Whether the hub answers. It is asked once in a process; if it does not, its libraries use only their caches."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _ask_hub()


@lru_cache(maxsize=1)
def _ask_hub() -> bool:
    """Ask the hub once, for at most ``PATIENCE`` seconds also if a name server does not answer."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session, httpx  # type: ignore[attr-defined]

    answered = Event()

    def ask() -> None:
        with suppress(httpx.HTTPError, OSError):
            get_session().head(constants.ENDPOINT, timeout=PATIENCE)
            answered.set()

    logger.info("asking the Hugging Face hub (%s)", constants.ENDPOINT)
    asking = Thread(target=ask, daemon=True, name="hub")
    asking.start()
    asking.join(PATIENCE)
    if not answered.is_set():
        logger.warning("the Hugging Face hub does not answer; only its local cache is used")
        os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE = "1", True
    return answered.is_set()


def summarise_error(error: BaseException) -> str:
    """The first line of an error's message, without its full stop and without the query strings of URLs.

    Both of the first two lines if the first one ends with a colon. Query strings are removed because the hub's download
    URLs contain a signature that lets anyone read the file.
    """
    lines = [line.strip() for line in str(error).strip().splitlines()]
    said = " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else type(error).__name__
    return _QUERY.sub(r"\1", said.rstrip("."))


class ProcessContext(ContextDecorator):
    """A context that changes the whole process: entered by the first thread inside, left by the last; a decorator too.

    If each thread restored what it found, one would restore what another had changed.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make, self._lock, self._inside = make, Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._entered = self._make()
                self._entered.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._entered.__exit__(None, None, None)


@contextmanager
def _silence() -> Iterator[None]:
    from huggingface_hub import logging as hub_logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    verbosity, hub_verbosity = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    bars, downloads = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.ERROR)
    hub_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    if downloads:
        enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


_silent = ProcessContext(_silence)


def silence_libraries() -> ProcessContext:
    """Silence the logs of transformers and the hub client, and the progress bars of loading weights.

    Progress bars of downloads stay; the hub client shows them only on a terminal. A context and a decorator, which may
    be nested.
    """
    return _silent


T = TypeVar("T")

SETTLED_NS = 2 * 10**9
"""Nanoseconds after a change in which another one may leave all times of a file as they are, on a coarse clock."""


def keep_while_unchanged(most: int) -> Callable[[Callable[[Path], T]], Callable[[Path], T]]:
    """Let a function that reads a file return what it read before from the same, unchanged file, for ``most`` files.

    A file counts as unchanged if its place on the disk, its size and the times of its last changes are the same; what
    is read from a file that has just been changed is not kept. Callers get the same object, and must not change it.
    """

    def decorate(read: Callable[[Path], T]) -> Callable[[Path], T]:
        kept = lru_cache(maxsize=most)(lambda path, _identity: read(path))

        @wraps(read)
        def read_once(path: Path) -> T:
            state = path.stat()
            if time.time_ns() - state.st_mtime_ns < SETTLED_NS:
                return read(path)
            identity = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
            return kept(path, identity)

        return read_once

    return decorate


@keep_while_unchanged(most=2**10)
def hash_file(path: Path) -> str:
    """SHA-256 of a file, computed again only if it has changed; raises ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
