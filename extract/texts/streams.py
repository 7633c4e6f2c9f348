"""Hub datasets: their documents as a stream that continues where it was after the connection breaks.

Only data that is read is downloaded: shards (the files of a split) one after another, and of a Parquet file only the
column, ``PIECE`` bytes at a time. The seed decides the order of the shards, and the order of the rows in a shuffle
buffer of ``SHUFFLED_DOCUMENTS`` documents. The buffer stays in memory during a break and holds everything read ahead,
so no document is lost or read twice; downloaded again is only the part before the break of the current row group, or
of the current file if it is not Parquet. Memory at any time: the documents of the buffer and ``ROWS`` rows of a Parquet
file with a piece or a page of it, or what ``datasets`` reads of another format at a time (10 MiB of JSON Lines).
"""

import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the HTTP client that it uses
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from extract.hub import is_hub_reachable, summarise_error
from extract.settings import CorpusSettings
from extract.texts.readers import ROWS, describe_missing_column, select_text
from storage.errors import UserError, escape_unprintable

logger = logging.getLogger(__name__)

SHUFFLED_DOCUMENTS = 1000
"""Documents in the shuffle buffer of a hub dataset."""

PIECE = 2**20
"""Bytes of a column of a Parquet file requested at a time."""

ATTEMPTS = 7
"""Attempts to read one document, each of up to 23 s in the hub's own client; the waits between them add up to 2 min."""

LONGEST_WAIT = 60.0
"""Most seconds between two attempts; the waits begin at 2 s and double."""

PARQUET_BRANCH = "refs/convert/parquet"
"""Branch where the hub stores datasets of other formats as Parquet files, with a directory for each subset."""

TIMEOUT = 30.0
"""Seconds that the hub has to answer which commit a revision is."""

COMMIT = re.compile("[0-9a-f]{40}")

T = TypeVar("T")

Shard: TypeAlias = Callable[[int], Iterator[dict[str, Any]]]
"""Opens one file of a dataset at a row, and returns the rows from there on."""


def open_stream(corpus: CorpusSettings, seed: int) -> tuple[Iterator[str], str]:
    """The documents of a hub dataset, in an order that ``seed`` decides, and the commit of its revision.

    If the hub cannot be reached or must not be asked, the local cache of ``datasets`` is read. A stream that breaks is
    retried up to ``ATTEMPTS`` times, with a line in the log each time, and continues where it was.
    """
    shards, revision = _make_retrying(corpus)(_open_shards, corpus)
    ordered = random.Random(seed).sample(shards, len(shards))  # noqa: S311 - as in ``shuffle_buffered``
    rows = (row for shard in ordered for row in _read_shard(corpus, shard))
    texts = (select_text(row, corpus.column, corpus.id, "a row") for row in rows)
    return shuffle_buffered(texts, SHUFFLED_DOCUMENTS, seed), revision


def shuffle_buffered(items: Iterable[T], size: int, seed: int) -> Iterator[T]:
    """Iterate over the items in random order with a buffer of ``size`` items; no more than that is read ahead."""
    generator = random.Random(seed)  # noqa: S311 - a reproducible choice, not a secret
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


def _read_shard(corpus: CorpusSettings, shard: Shard) -> Iterator[dict[str, Any]]:
    """The rows of a shard; after a break, reading resumes."""
    read, retrying = 0, _make_retrying(corpus)
    rows: Iterator[dict[str, Any]] | None = None

    def read_next() -> dict[str, Any] | None:
        nonlocal rows
        opened, rows = rows or shard(read), None  # set again once a row has been read: after a break it is reopened
        with _translate_errors(corpus):
            row = next(opened, None)
        rows = opened
        return row

    while (row := retrying(read_next)) is not None:
        read += 1
        yield row


def _read_parquet_rows(path: str, column: str, first: int) -> Iterator[dict[str, Any]]:
    """The column of a Parquet file from row ``first`` on; no other data is requested, and no thread reads ahead.

    ``datasets`` reads Parquet in threads, which continue when the rows are no longer needed and abort or hang an
    interpreter that exits in the meantime.
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


def _skip_rows(file: Any, first: int) -> Iterator[dict[str, Any]]:
    return iter(file.skip(first))


def _open_shards(corpus: CorpusSettings) -> tuple[list[Shard], str]:
    """The shards of the split, and the commit of the dataset."""
    import datasets
    from datasets.packaged_modules.parquet.parquet import ParquetConfig

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    _disable_retries(datasets.config)
    with _translate_errors(corpus):
        builder = _load_builder(corpus)
        splits = builder.as_streaming_dataset()
        if corpus.split not in splits:
            raise UserError(
                f"The corpus '{corpus.id}' has no split '{corpus.split}'; set split to one of: {', '.join(splits)}"
            )
        dataset = splits[corpus.split]
        if dataset.column_names is not None and corpus.column not in dataset.column_names:
            raise UserError(describe_missing_column(corpus.column, dataset.column_names, corpus.id, "it"))
    if isinstance(builder.config, ParquetConfig):
        paths = {str(split): paths for split, paths in builder.config.data_files.items()}[corpus.split]
        return [partial(_read_parquet_rows, path, corpus.column) for path in paths], builder.hash
    of_files = (dataset.shard(dataset.num_shards, index) for index in range(dataset.num_shards))
    return [partial(_skip_rows, file) for file in of_files], builder.hash


def _disable_retries(config: Any) -> None:
    """Keep ``datasets`` from retrying every read 20 times by itself, which takes minutes and logs nothing."""
    config.STREAMING_READ_MAX_RETRIES = config.STREAMING_OPEN_MAX_RETRIES = 1
    config.STREAMING_READ_RETRY_INTERVAL = config.STREAMING_OPEN_RETRY_INTERVAL = 0
    config.STREAMING_READ_SERVER_UNAVAILABLE_RETRY_INTERVAL = config.STREAMING_READ_RATE_LIMIT_RETRY_INTERVAL = 0


def _load_builder(corpus: CorpusSettings) -> Any:
    """The builder of ``datasets`` for the dataset, at one commit of the hub or from its local cache."""
    import datasets

    if (commit := _find_commit(corpus)) is None:
        return _load_cached_builder(corpus)
    part = {"data_dir" if corpus.revision == PARQUET_BRANCH else "name": corpus.subset}
    try:
        return datasets.load_dataset_builder(corpus.id, revision=commit, **part)
    except ValueError as error:
        names = datasets.get_dataset_config_names(corpus.id, revision=commit)
        if corpus.subset in names:
            raise
        raise UserError(
            f"The corpus '{corpus.id}' has no subset '{corpus.subset}'; set subset to one of: {', '.join(names)}"
        ) from error


def _find_commit(corpus: CorpusSettings) -> str | None:
    """The hub's commit of the revision; None if the hub must not be asked or cannot be reached."""
    from datasets import config

    if config.HF_HUB_OFFLINE or not is_hub_reachable():
        return None
    try:
        return HfApi().dataset_info(corpus.id, revision=corpus.revision or "main", timeout=TIMEOUT).sha
    except (OfflineModeIsEnabled, httpx.ConnectError, httpx.TimeoutException):
        return None


def _load_cached_builder(corpus: CorpusSettings) -> Any:
    import datasets

    out = f"The corpus '{corpus.id}' is not a local file, and the Hugging Face hub cannot be reached"
    asking, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, True  # it has been asked, or must not be
    try:
        builder = datasets.load_dataset_builder(corpus.id, corpus.subset, revision=corpus.revision)
    except OSError as error:
        raise UserError(f"{out}; check the network and HF_HUB_OFFLINE, or give a local file or directory") from error
    finally:
        datasets.config.HF_HUB_OFFLINE = asking
    if corpus.revision and COMMIT.fullmatch(corpus.revision) and corpus.revision != builder.hash:
        raise UserError(f"{out}; the local cache has only its commit {builder.hash}, set revision to that")
    return builder


@contextmanager
def _translate_errors(corpus: CorpusSettings) -> Iterator[None]:
    """Raise permanent errors as a ``UserError``; transient ones are left to ``_make_retrying``."""
    import datasets

    try:
        yield
    except (OSError, ValueError, RuntimeError, httpx.HTTPError, datasets.exceptions.DatasetsError) as error:
        if _is_transient(error):
            raise
        raise UserError(_explain_error(corpus, error)) from error


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may help: the connection broke or was refused, or the server is busy or failing."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in {408, 429} or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError | ConnectionError | TimeoutError)


def _make_retrying(corpus: CorpusSettings) -> Retrying:
    """A retry policy that calls a function again, after increasing waits, if its error is transient."""

    def tell(state: RetryCallState) -> None:
        wait = state.next_action.sleep if state.next_action else 0
        said = "The stream of the corpus '%s' broke (%s); retrying in %.0f s"
        logger.warning(said, escape_unprintable(corpus.id), escape_unprintable(_describe_failure(state)), wait)

    def give_up(state: RetryCallState) -> None:
        raise UserError(
            f"The stream of the corpus '{corpus.id}' broke {state.attempt_number} times in a row "
            f"({_describe_failure(state)}); check the network and run again, the run continues after the finished "
            "sequences"
        )

    return Retrying(
        retry=retry_if_exception(_is_transient),
        wait=wait_exponential(multiplier=2, max=LONGEST_WAIT),
        stop=stop_after_attempt(ATTEMPTS),
        before_sleep=tell,
        retry_error_callback=give_up,
    )


def _describe_failure(state: RetryCallState) -> str:
    error = state.outcome.exception() if state.outcome else None
    return summarise_error(error.__cause__ or error) if error else ""


def _explain_error(corpus: CorpusSettings, error: Exception) -> str:
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
            f"The corpus '{corpus.id}' is defined by a script, which is never run; set revision to {PARQUET_BRANCH}, "
            "where the hub stores such datasets as Parquet files"
        )
    return (
        f"The corpus '{corpus.id}' cannot be read from the Hugging Face hub ({summarise_error(error)}); "
        "choose another dataset or revision, or download it and give the directory"
    )
