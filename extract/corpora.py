"""Corpora: the documents of a text, and equal-length windows of tokens chosen from them.

Holds reading (the shipped manual, local files, hub datasets) and the seeded choice of windows. What does not belong
here: models and tokenizers themselves (``extract.models``), and running them (``extract.extraction``).

Everything is read as a stream. In memory at a time are one document, or one block of ``BLOCK`` to 2 ``BLOCK``
characters of a ``.txt`` file, or ``ROWS`` rows of a column, and the ``SHUFFLED`` windows of the shuffle buffer:
4 * SHUFFLED * context_length bytes.
"""

import codecs
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from extract.embedded.manual import topics
from extract.hub import means_a_path, one_line
from extract.settings import EMBEDDED, CorpusSettings
from storage.errors import UserError

BLOCK = 2**20
"""Characters of a ``.txt`` file that make one document, up to the next line end."""

ROWS = 256
"""Rows read at a time from a Parquet file."""

SHUFFLED = 1024
"""Windows in the shuffle buffer."""

SHUFFLED_DOCUMENTS = 1000
"""Documents in the shuffle buffer of a hub dataset."""

SUFFIXES = (".txt", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Windows:
    """Equal-length token windows and how they were come by."""

    tokens: NDArray[np.int32]
    """Token ids, int32 (sequences, context_length); each window starts with BOS where the tokenizer has one."""
    documents_read: int
    documents_skipped: int
    """Documents read that were too short for one window."""
    sha256: str
    """Of the corpus where it can be hashed as a whole, of ``tokens`` (little-endian) for a hub dataset."""


@dataclass
class _Counts:
    """Documents, tokens and windows met so far."""

    read: int = 0
    skipped: int = 0
    tokens: int = 0
    windows: int = 0


def windows(
    corpus: CorpusSettings, tokenizer: PreTrainedTokenizerBase, context_length: int, sequences: int, seed: int
) -> Windows:
    """Choose ``sequences`` windows of ``context_length`` tokens, without padding; the same for the same ``seed``.

    A document yields its consecutive windows that do not overlap; documents shorter than one window are skipped and
    counted. With ``corpus.pack``, documents are joined end to end first, with EOS between where there is one. The
    choice is made in a shuffle buffer of ``SHUFFLED`` windows, so a large corpus is read only as far as needed.

    Raises
    ------
    UserError
        If the corpus is missing, empty or cannot be read, or has too little text.
    """
    checksum, counts = identity(corpus), _Counts()
    stream = _cut(documents(corpus, seed), tokenizer, context_length, pack=corpus.pack, counts=counts)
    chosen = _shuffled(stream, sequences, seed)
    if len(chosen) < sequences:
        raise UserError(_too_little(corpus, counts, context_length, sequences))
    tokens = np.stack(chosen)
    if checksum is None:
        checksum = hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()
    return Windows(tokens, counts.read, counts.skipped, checksum)


def identity(corpus: CorpusSettings) -> str | None:
    """SHA-256 of a corpus that can be hashed without choosing from it; None for a hub dataset.

    Raises
    ------
    UserError
        If it is a local file that is missing, empty, or of an unknown kind.
    """
    if corpus.id == EMBEDDED:
        return hashlib.sha256(json.dumps(topics("held_out")).encode()).hexdigest()
    if not is_local(corpus):
        return None
    with _local(corpus).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def documents(corpus: CorpusSettings, seed: int) -> Iterator[str]:
    """The documents of a corpus, in the order of the file; those of a hub dataset shuffled by ``seed``.

    Raises
    ------
    UserError
        If the corpus is missing or cannot be read, as soon as that shows.
    """
    if corpus.id == EMBEDDED:
        return iter([text for _, text in topics("held_out")])
    if not is_local(corpus):
        return _hub_dataset(corpus, seed)
    path = _local(corpus)
    if path.suffix == ".parquet":
        return _parquet(corpus, path)
    return _jsonl(corpus, path) if path.suffix == ".jsonl" else _text_blocks(corpus, path)


def is_local(corpus: CorpusSettings) -> bool:
    """Whether the id names a file, be it only by its ending."""
    return corpus.id.endswith(SUFFIXES) or means_a_path(corpus.id)


def _local(corpus: CorpusSettings) -> Path:
    """A file that is there, of a known kind, and not empty."""
    path = Path(corpus.id).expanduser()
    if not path.exists():
        msg = f"There is no corpus file '{corpus.id}'; give a {'/'.join(SUFFIXES)} file, a hub dataset, or '{EMBEDDED}'"
        raise UserError(msg)
    if path.suffix not in SUFFIXES or not path.is_file():
        msg = f"The corpus '{corpus.id}' is no {'/'.join(SUFFIXES)} file; convert it to one of these"
        raise UserError(msg)
    if path.stat().st_size == 0:
        msg = f"The corpus file '{corpus.id}' is empty; give one with text in it"
        raise UserError(msg)
    return path


def _text_blocks(corpus: CorpusSettings, path: Path) -> Iterator[str]:
    """A text file in blocks that end at line ends."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            while block := file.read(BLOCK) + file.readline(BLOCK):
                yield block
    except UnicodeDecodeError as error:
        raise UserError(_not_utf8(corpus, path)) from error


def _jsonl(corpus: CorpusSettings, path: Path) -> Iterator[str]:
    """The field ``column`` of each line of a JSON Lines file."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _text(corpus, _json_object(corpus, line, number), f"line {number}")
    except UnicodeDecodeError as error:
        raise UserError(_not_utf8(corpus, path)) from error


def _json_object(corpus: CorpusSettings, line: str, number: int) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        record = json.loads(line)
    except ValueError as error:
        msg = f"The corpus '{corpus.id}' has a line that is no JSON: line {number}, {error}; mend or remove it"
        raise UserError(msg) from error
    if not isinstance(record, dict):
        msg = f"The corpus '{corpus.id}' has a line that is no JSON object: line {number}; write one object a line"
        raise UserError(msg)
    return record


def _parquet(corpus: CorpusSettings, path: Path) -> Iterator[str]:
    """The column ``column`` of a Parquet file, ``ROWS`` rows at a time; no other column is read."""
    try:
        with pq.ParquetFile(path) as file:
            if corpus.column not in file.schema_arrow.names:
                raise UserError(_no_column(corpus, file.schema_arrow.names))
            for batch in file.iter_batches(batch_size=ROWS, columns=[corpus.column]):
                for record in batch.to_pylist():
                    yield _text(corpus, record, "a row")
    except (pa.ArrowException, OSError) as error:
        msg = f"The corpus '{corpus.id}' is no readable Parquet file ({one_line(error)}); write it again"
        raise UserError(msg) from error


def _hub_dataset(corpus: CorpusSettings, seed: int) -> Iterator[str]:
    """The column ``column`` of a dataset on the Hugging Face hub, streamed and shuffled by ``seed``."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        dataset = datasets.load_dataset(
            corpus.id, corpus.subset, revision=corpus.revision, split=corpus.split, streaming=True
        )
        for record in dataset.shuffle(seed=seed, buffer_size=SHUFFLED_DOCUMENTS):
            yield _text(corpus, record, "a row")
    except datasets.exceptions.DatasetNotFoundError as error:
        msg = (
            f"The corpus '{corpus.id}' is neither a local file nor a dataset on the Hugging Face hub that can be read; "
            "check the id; if it is gated or private, accept its terms and log in with `hf auth login` or set HF_TOKEN"
        )
        raise UserError(msg) from error
    except ConnectionError as error:
        msg = (
            f"The corpus '{corpus.id}' is no local file, and the Hugging Face hub cannot be reached; "
            "check the network and HF_HUB_OFFLINE, or give a local file"
        )
        raise UserError(msg) from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        msg = f"The corpus '{corpus.id}' cannot be read from the Hugging Face hub: {one_line(error)}"
        raise UserError(msg) from error


def _text(corpus: CorpusSettings, record: dict[str, Any], where: str) -> str:
    """The text of one record; a null reads as no text."""
    if corpus.column not in record:
        raise UserError(_no_column(corpus, list(record), where))
    text = record[corpus.column]
    if text is not None and not isinstance(text, str):
        msg = (
            f"The column '{corpus.column}' of the corpus '{corpus.id}' holds {type(text).__name__} in {where}; "
            f"set column to one that holds text: {', '.join(record)}"
        )
        raise UserError(msg)
    return text or ""


def _cut(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, context_length: int, *, pack: bool, counts: _Counts
) -> Iterator[NDArray[np.int32]]:
    """The windows (context_length,) of the documents in order, counting in ``counts``."""
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    end = [] if tokenizer.eos_token_id is None or not pack else [tokenizer.eos_token_id]
    size = context_length - len(start)
    rest: list[int] = []
    for text in texts:
        ids = rest + tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] + end
        counts.read += 1
        counts.tokens += len(ids) - len(rest)
        counts.skipped += not pack and len(ids) < size
        whole = len(ids) - len(ids) % size
        for first in range(0, whole, size):
            counts.windows += 1
            yield np.array(start + ids[first : first + size], dtype=np.int32)
        rest = ids[whole:] if pack else []


def _shuffled(stream: Iterable[NDArray[np.int32]], wanted: int, seed: int) -> list[NDArray[np.int32]]:
    """At most ``wanted`` elements of the stream in random order, through a buffer of ``SHUFFLED``."""
    generator = random.Random(seed)  # noqa: S311 - a choice anyone shall be able to repeat, no secret
    buffer: list[NDArray[np.int32]] = []
    chosen: list[NDArray[np.int32]] = []
    for item in stream:
        if len(buffer) < SHUFFLED:
            buffer.append(item)
            continue
        place = generator.randrange(SHUFFLED)
        chosen.append(buffer[place])
        buffer[place] = item
        if len(chosen) == wanted:
            return chosen
    generator.shuffle(buffer)
    return chosen + buffer[: wanted - len(chosen)]


def _too_little(corpus: CorpusSettings, counts: _Counts, context_length: int, sequences: int) -> str:
    """What to say when a corpus has fewer windows than asked for."""
    remedies = ["lower sequences or context_length", "give more text"]
    if counts.skipped:
        remedies.insert(1, f"set pack to join the {counts.skipped} documents that are too short")
    return (
        f"The corpus '{corpus.id}' has too little text: {counts.windows} sequences of {context_length} tokens "
        f"from {counts.tokens} tokens in {counts.read} documents, {sequences} are asked for; {', or '.join(remedies)}"
    )


def _no_column(corpus: CorpusSettings, names: list[str], where: str = "it") -> str:
    """What to say when the column is lacking."""
    return (
        f"The corpus '{corpus.id}' has no column '{corpus.column}' in {where}; "
        f"set column to one of: {', '.join(names) or '(there are none)'}"
    )


def _not_utf8(corpus: CorpusSettings, path: Path) -> str:
    """What to say when a file is not UTF-8, with the place of the first wrong byte."""
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        while True:
            chunk = file.read(BLOCK)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                offset = position - pending + error.start
                return f"The corpus '{corpus.id}' is not UTF-8 at byte {offset}; convert it with iconv -t UTF-8"
            position += len(chunk)
