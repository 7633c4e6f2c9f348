"""Hub datasets: their documents as a stream that goes on where it was when the connection breaks.

Holds opening a dataset of the Hugging Face hub, or of the local cache of ``datasets``, at one commit, and reading on
after a break. What does not belong here: local files (``extract.readers``) and choosing windows (``extract.corpora``).

Nothing is downloaded but what is read: shards (the files of a split) one after the other, of a Parquet file only the
column, ``PIECE`` bytes at a time. The seed decides the order of the shards, and a shuffle buffer of
``SHUFFLED_DOCUMENTS`` documents that of their rows. The buffer stays in memory over a break and holds everything read
ahead, so no document is lost or read twice; what is downloaded again is the part of the row group, or of a file that
is no Parquet, that lies before the break. In memory at a time are the documents of the buffer and ``ROWS`` rows of a
Parquet file with a piece or a page of it, or what ``datasets`` takes of another format at a time (10 MiB of JSON
Lines).
"""

import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow.parquet as pq
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the client it uses, whichever that is
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from extract.hub import one_line
from extract.readers import ROWS, no_column, text_of
from extract.settings import CorpusSettings
from extract.terminal import harmless
from storage.errors import UserError

logger = logging.getLogger(__name__)

SHUFFLED_DOCUMENTS = 1000
"""Documents in the shuffle buffer of a hub dataset."""

PIECE = 2**20
"""Bytes of a column of a Parquet file asked for at a time."""

ATTEMPTS = 7
"""Attempts at one document. The waits between them make 2 minutes; in each the hub's own client tries for 23 s."""

LONGEST_WAIT = 60.0
"""Seconds between two attempts at most; the waits begin at 2 s and double."""

PARQUET_BRANCH = "refs/convert/parquet"
"""Where the hub keeps a dataset as Parquet files that comes in another form, with a directory for each subset."""

TIMEOUT = 30.0
"""Seconds that the hub has to say which commit a revision is."""

COMMIT = re.compile("[0-9a-f]{40}")

T = TypeVar("T")

Shard: TypeAlias = Callable[[int], Iterator[dict[str, Any]]]
"""Opens one file of a dataset at a row, and gives the rows from there on."""


@dataclass(frozen=True)
class Stream:
    """The documents of a hub dataset and where they are from."""

    revision: str
    """Commit that is read."""
    documents: Iterator[str]


def stream(corpus: CorpusSettings, seed: int) -> Stream:
    """Open a hub dataset at the commit its revision stands for; its documents come in an order decided by ``seed``.

    Where the hub is out of reach or offline mode is on, the local cache of ``datasets`` is read if it is there. A
    stream that breaks is tried again ``ATTEMPTS`` times, with a line in the log each time, and goes on where it was.

    Raises
    ------
    UserError
        If there is no such dataset, revision, subset, split or column, it may not or cannot be read, or the stream
        stays broken; the last two also while it is read.
    """
    shards, revision = _retrying(corpus)(_opened, corpus)
    texts = (text_of(row, corpus.column, corpus.id, "a row") for row in _Rows(corpus, shards, seed))
    return Stream(revision, shuffled(texts, SHUFFLED_DOCUMENTS, seed))


def shuffled(items: Iterable[T], size: int, seed: int) -> Iterator[T]:
    """The items in random order through a buffer of ``size``, reading no further ahead than that."""
    generator = random.Random(seed)  # noqa: S311 - a choice anyone shall be able to repeat, no secret
    buffer: list[T] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        place = generator.randrange(size)
        yield buffer[place]
        buffer[place] = item
    generator.shuffle(buffer)
    yield from buffer


class _Rows:
    """The rows of the shards, in an order of shards decided by the seed; after a break they go on where it was."""

    def __init__(self, corpus: CorpusSettings, shards: list[Shard], seed: int) -> None:
        self._corpus = corpus
        self._shards = random.Random(seed).sample(shards, len(shards))  # noqa: S311 - as in ``shuffled``
        self._read = 0
        """Rows read of the first of ``_shards``."""
        self._open: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        retrying = _retrying(self._corpus)
        while (row := retrying(self._next)) is not None:
            yield row

    def _next(self) -> dict[str, Any] | None:
        """The next row, None behind the last."""
        while self._shards:
            rows = self._open or self._shards[0](self._read)
            self._open = None  # put back when a row has come, so that it is opened anew after a break
            with _explained(self._corpus):
                row = next(rows, None)
            if row is not None:
                self._open, self._read = rows, self._read + 1
                return row
            del self._shards[0]
            self._read = 0
        return None


def _parquet_rows(path: str, column: str, first: int) -> Iterator[dict[str, Any]]:
    """The column of a Parquet file from row ``first`` on; nothing else is asked for, and no thread reads ahead.

    ``datasets`` reads Parquet in threads, which go on when nobody wants the rows and abort or hang an interpreter
    that ends meanwhile.
    """
    system, place = url_to_fs(path)
    how = {"buffer_size": PIECE, "pre_buffer": False}
    with system.open(place, "rb", cache_type="none") as opened, pq.ParquetFile(opened, **how) as file:
        for group in range(file.num_row_groups):
            if (rows := file.metadata.row_group(group).num_rows) <= first:
                first -= rows
                continue
            for batch in file.iter_batches(ROWS, row_groups=[group], columns=[column], use_threads=False):
                yield from batch.slice(first).to_pylist()
                first = max(0, first - len(batch))


def _other_rows(dataset: Any, index: int, first: int) -> Iterator[dict[str, Any]]:
    """The rows of one shard of an ``IterableDataset`` from row ``first`` on."""
    return iter(dataset.shard(dataset.num_shards, index).skip(first))


def _opened(corpus: CorpusSettings) -> tuple[list[Shard], str]:
    """The shards of the split, and the commit of the dataset."""
    import datasets
    from datasets.packaged_modules.parquet.parquet import ParquetConfig

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    _leave_retrying(datasets.config)
    with _explained(corpus):
        builder = _builder(corpus)
        splits = builder.as_streaming_dataset()
        if corpus.split not in splits:
            msg = f"The corpus '{corpus.id}' has no split '{corpus.split}'; set split to one of: {', '.join(splits)}"
            raise UserError(msg)
        dataset = splits[corpus.split]
        if dataset.column_names is not None and corpus.column not in dataset.column_names:
            raise UserError(no_column(corpus.column, dataset.column_names, corpus.id, "it"))
    if isinstance(builder.config, ParquetConfig):
        paths = {str(split): paths for split, paths in builder.config.data_files.items()}[corpus.split]
        return [partial(_parquet_rows, path, corpus.column) for path in paths], builder.hash
    return [partial(_other_rows, dataset, index) for index in range(dataset.num_shards)], builder.hash


def _leave_retrying(config: Any) -> None:
    """Keep ``datasets`` from repeating every read 20 times by itself, which takes minutes and logs nothing."""
    config.STREAMING_READ_MAX_RETRIES = config.STREAMING_OPEN_MAX_RETRIES = 1
    config.STREAMING_READ_RETRY_INTERVAL = config.STREAMING_OPEN_RETRY_INTERVAL = 0
    config.STREAMING_READ_SERVER_UNAVAILABLE_RETRY_INTERVAL = config.STREAMING_READ_RATE_LIMIT_RETRY_INTERVAL = 0


def _builder(corpus: CorpusSettings) -> Any:
    """What ``datasets`` reads the dataset with, at one commit of the hub, or from its local cache."""
    import datasets

    if (commit := _commit(corpus)) is None:
        return _cached(corpus)
    part = {"data_dir" if corpus.revision == PARQUET_BRANCH else "name": corpus.subset}
    try:
        return datasets.load_dataset_builder(corpus.id, revision=commit, **part)
    except ValueError as error:
        names = datasets.get_dataset_config_names(corpus.id, revision=commit)
        if corpus.subset in names:
            raise
        msg = f"The corpus '{corpus.id}' has no subset '{corpus.subset}'; set subset to one of: {', '.join(names)}"
        raise UserError(msg) from error


def _commit(corpus: CorpusSettings) -> str | None:
    """The commit of the hub that the revision stands for; None where the hub is not to be or cannot be asked."""
    from datasets import config

    if config.HF_HUB_OFFLINE:
        return None
    try:
        return HfApi().dataset_info(corpus.id, revision=corpus.revision or "main", timeout=TIMEOUT).sha
    except (OfflineModeIsEnabled, httpx.ConnectError, httpx.TimeoutException):
        return None


def _cached(corpus: CorpusSettings) -> Any:
    """The dataset as it lies in the local cache of ``datasets``."""
    import datasets

    out = f"The corpus '{corpus.id}' is no local file, and the Hugging Face hub cannot be reached"
    asking, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, True  # it was asked, or must not be
    try:
        builder = datasets.load_dataset_builder(corpus.id, corpus.subset, revision=corpus.revision)
    except OSError as error:
        msg = f"{out}; check the network and HF_HUB_OFFLINE, or give a local file or directory"
        raise UserError(msg) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = asking
    if corpus.revision and COMMIT.fullmatch(corpus.revision) and corpus.revision != builder.hash:
        msg = f"{out}; the local cache has its commit {builder.hash} only, set revision to that"
        raise UserError(msg)
    return builder


@contextmanager
def _explained(corpus: CorpusSettings) -> Iterator[None]:
    """Raise what does not heal by itself as a ``UserError``; what may is left to ``_retrying``."""
    import datasets

    try:
        yield
    except (OSError, ValueError, RuntimeError, httpx.HTTPError, datasets.exceptions.DatasetsError) as error:
        if _heals(error):
            raise
        raise UserError(_explanation(corpus, error)) from error


def _heals(error: BaseException) -> bool:
    """Whether asking again may help: a connection that broke or was refused, a server that is busy or ill."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in {408, 429} or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError | ConnectionError | TimeoutError)


def _retrying(corpus: CorpusSettings) -> Retrying:
    """Calls a function again, after growing waits, where ``_heals``."""

    def tell(state: RetryCallState) -> None:
        wait = state.next_action.sleep if state.next_action else 0
        said = "The stream of the corpus '%s' broke (%s); trying again in %.0f s"
        logger.warning(said, harmless(corpus.id, keep=""), harmless(_reason(state), keep=""), wait)

    def give_up(state: RetryCallState) -> None:
        msg = (
            f"The stream of the corpus '{corpus.id}' broke {state.attempt_number} times in a row ({_reason(state)}); "
            "check the network and run again, it continues after the finished sequences"
        )
        raise UserError(msg)

    return Retrying(
        retry=retry_if_exception(_heals),
        wait=wait_exponential(multiplier=2, max=LONGEST_WAIT),
        stop=stop_after_attempt(ATTEMPTS),
        before_sleep=tell,
        retry_error_callback=give_up,
    )


def _reason(state: RetryCallState) -> str:
    """Why the last attempt failed: what ``datasets`` wraps says more than what it wraps it in."""
    error = state.outcome.exception() if state.outcome else None
    return one_line(error.__cause__ or error) if error else ""


def _explanation(corpus: CorpusSettings, error: Exception) -> str:
    """What is wrong with a dataset that cannot be read, and what to do."""
    from datasets.exceptions import DatasetNotFoundError

    if isinstance(error, RevisionNotFoundError):
        return f"The corpus '{corpus.id}' has no revision '{corpus.revision}'; give a branch, tag or commit of it"
    if isinstance(error, GatedRepoError) or (isinstance(error, DatasetNotFoundError) and "gated" in str(error)):
        return (
            f"The corpus '{corpus.id}' is gated: accept its terms at https://huggingface.co/datasets/{corpus.id}, "
            "then log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, RepositoryNotFoundError | DatasetNotFoundError):
        return (
            f"The corpus '{corpus.id}' is neither a local file nor a dataset on the Hugging Face hub that can be read; "
            "check the id, and if it is private log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, RuntimeError) and "scripts are no longer supported" in str(error):
        return (
            f"The corpus '{corpus.id}' comes as a script, which is never run; set revision to {PARQUET_BRANCH}, "
            "where the hub keeps such datasets as Parquet files"
        )
    return (
        f"The corpus '{corpus.id}' cannot be read from the Hugging Face hub ({one_line(error)}); "
        "choose another dataset or revision, or download it and give the directory"
    )
