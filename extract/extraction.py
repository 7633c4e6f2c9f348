"""Extraction: a model reads the chosen sequences, and the captured attention is written to the tensor store."""

import errno
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from extract import synthetic
from extract.capture.batches import (
    Batch,
    check_numbers,
    check_range,
    check_row,
    choose_batch_size,
    read_alone,
    read_batches,
    refuse_for_memory,
)
from extract.capture.buffers import find_widest
from extract.capture.one_pass import PROBE_TOKENS, Attention, probe
from extract.hub import silence_libraries
from extract.identity import SYNTHETIC_INPUTS
from extract.models import loading as models
from extract.models.loading import Description
from extract.settings import SYNTHETIC, CorpusSettings, ExtractionSettings, Shard
from extract.standing import (
    PROBED,
    build_provenance,
    combine_inputs,
    describe_device,
    list_versions,
    match_recorded,
)
from extract.texts import corpora
from extract.texts.corpora import Windows
from extract.texts.decoding import decode_sequences
from storage.errors import UserError, escape_unprintable
from storage.files.places import Place
from storage.zarr.arrays import READ_SEQUENCES, TENSORS, LayerSize, build_tensor_specs
from storage.zarr.layers import find_present_heads
from storage.zarr.sequences import SequenceStore

Before = Callable[[Mapping[str, int], int], None]
"""Callback that gets the sizes of the store's axes, and the number of sequences that the store lacks over all
processes; it may raise an error to refuse."""

T = TypeVar("T")

COUNTED = ("documents_read", "documents_skipped", "special_tokens", "lost_characters")
"""Fields of ``Counts`` that the provenance has."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExtractionReport:
    """Result of an extraction."""

    path: Place
    sequences: int
    """Sequences of the study."""
    written: int
    """Sequences written by this call."""
    missing: int
    """Sequences that the store still lacks: those of other shards."""
    bytes: int
    """Of the store on disk."""
    documents_read: int
    documents_skipped: int
    """Documents read that were too short for one sequence."""
    row_sum_deviation: float | None
    """Largest deviation from 1 of the sum of one head's weights and learned sink, over the finished sequences of the
    shard as read from disk; None if the weights have been dropped."""
    seconds: float


@dataclass(frozen=True)
class _Task:
    settings: ExtractionSettings
    study: str
    path: Place
    shard: Shard | None
    before: Before | None

    @property
    def sequences(self) -> range:
        """The sequences that this process extracts."""
        total = self.settings.sequences
        return self.shard.select_sequences(total) if self.shard else range(total)

    @property
    def stored(self) -> SequenceStore | None:
        """The store as it is now; None if there is none."""
        return SequenceStore.open(self.path, TENSORS) if self.path.exists() else None

    def find_missing(self) -> list[int]:
        """Those sequences of this process that are not in the store yet."""
        stored = self.stored
        missing = self.sequences if stored is None else stored.find_missing()
        return [index for index in missing if index in self.sequences]

    def pin_corpus(self) -> CorpusSettings:
        """The corpus; a hub dataset at the commit that an earlier run has read, in case its branch has moved."""
        stored = self.stored
        read = stored.provenance["inputs"]["corpus"].get("revision") if stored is not None else None
        return self.settings.corpus.model_copy(update={"revision": read} if read else {})

    def ask(self, sizes: Mapping[str, int], missing: Sequence[int]) -> None:
        """Let the caller refuse before this process's ``missing`` sequences are written."""
        if self.before is not None and missing:
            self.before(sizes, self.settings.sequences - self.count_finished())

    def count_finished(self) -> int:
        """Sequences in the store, of all processes."""
        stored = self.stored
        return 0 if stored is None else int(stored.read_ledger().sum())

    def open_store(
        self, sizes: Mapping[str, int], layers: Sequence[LayerSize], inputs: Mapping[str, Any], device: str
    ) -> SequenceStore:
        """Open the store, or make it if there is none."""
        settings = self.settings
        specs = build_tensor_specs(**settings.stored)
        provenance = build_provenance(settings, self.study, inputs) | {"versions": list_versions(device)}
        if (stored := self.stored) is not None:
            provenance = match_recorded(settings, provenance, stored.provenance)
        return SequenceStore.resume(self.path, specs, sizes, provenance, layers, alone=self.shard is None)


@silence_libraries()
def extract(
    settings: ExtractionSettings,
    *,
    study: str,
    path: Place,
    shard: Shard | None = None,
    before: Before | None = None,
) -> ExtractionReport:
    """Extract a study into the tensor store at ``path``, or continue where an earlier run was stopped.

    A sequence is always computed in the same batch as in an uninterrupted run, so that a run that was stopped and
    started again ends bit-identical. All checks that can refuse the study run before anything is written. One batch is
    written while the next is computed: beside the model, the captured tensors of at most two batches are in memory. A
    finished store is only checked, without loading the model.

    Of a ``shard`` only its part of the sequences is extracted; several processes may extract theirs at the same time.
    ``before`` is called when all sizes are known and before anything is written, unless nothing is missing.
    """
    started = time.monotonic()
    task = _Task(settings, study, path, shard, before)
    store, written = _draw_synthetic(task) if settings.model.id == SYNTHETIC else _read(task)
    corpus = store.provenance["inputs"]["corpus"]
    missing = store.find_missing()
    return ExtractionReport(
        path=path,
        sequences=settings.sequences,
        written=written,
        missing=len(missing),
        bytes=store.path.measure_size(),
        documents_read=corpus["documents_read"],
        documents_skipped=corpus["documents_skipped"],
        row_sum_deviation=_compute_row_sum_deviation(store, sorted(set(task.sequences) - set(missing))),
        seconds=time.monotonic() - started,
    )


def _draw_synthetic(task: _Task) -> tuple[SequenceStore, int]:
    """Draw the missing sequences of a synthetic study; return the store and the number of sequences written."""
    settings, missing = task.settings, task.find_missing()
    heads, layers = synthetic.plant_heads(settings), synthetic.list_layer_sizes(settings)
    sizes = _compute_sizes(settings, layers)
    task.ask(sizes, missing)
    with _translate_errors(task):
        store = task.open_store(sizes, layers, SYNTHETIC_INPUTS, "cpu")
        for index in _make_bar(task, missing):
            arrays = synthetic.draw_sequence(settings, heads, index)
            for layer, values in enumerate(torch.from_numpy(arrays["values"])):
                check_range(values, layer, settings)
            store.write(index, arrays | {"values": arrays["values"].astype(settings.values, copy=False)})
    return store, len(missing)


_ALREADY_READ: ContextVar[dict[str, Any] | None] = ContextVar("already read", default=None)
"""Descriptions and windows that ``check`` has read, by what they were read from; None outside ``check``."""


@contextmanager
def check(settings: ExtractionSettings, path: Place) -> Iterator[None]:
    """Refuse inputs that ``extract`` would refuse before it loads the weights; nothing is written.

    What was read is not read again by ``extract`` inside the context.
    """
    token = _ALREADY_READ.set({})
    try:
        if settings.model.id != SYNTHETIC:
            with silence_libraries():
                _read_inputs(_Task(settings, "", path, None, None))
        yield
    finally:
        _ALREADY_READ.reset(token)


def _read_inputs(task: _Task) -> None:
    """Read all inputs but the weights, unless the store at the task's path has all sequences."""
    description = _describe(task.settings)
    try:
        missing = task.find_missing()
        corpus = task.pin_corpus()
    except UserError:  # a store that is damaged, or of another version
        missing, corpus = [0], task.settings.corpus
    if missing:
        _check_vocabulary(description, _select_windows(task.settings, corpus, description).tokens)
        _select_probe(task.settings, description)


def _describe(settings: ExtractionSettings) -> Description:
    """Describe the model of a study, once inside ``check``."""
    return _read_once(f"model {settings.model_dump_json()}", lambda: models.describe(settings))


def _select_windows(settings: ExtractionSettings, corpus: CorpusSettings, description: Description) -> Windows:
    """Select the sequences of a study from its corpus, once inside ``check``."""
    length, sequences, seed = settings.context_length, settings.sequences, settings.seed
    return _read_once(
        f"corpus {corpus.model_dump_json()} of {settings.model_dump_json()}",
        lambda: corpora.select_windows(corpus, description.tokenizer, length, sequences, seed, settings.bos),
    )


def _select_probe(settings: ExtractionSettings, description: Description) -> NDArray[np.int32] | None:
    """The sequences of the study's probe, (sequences, context_length); None if it has none."""
    if settings.probe is None:
        return None
    tokens = _select_windows(settings, CorpusSettings.model_validate({"id": settings.probe}), description).tokens
    _check_vocabulary(description, tokens)
    return tokens


def _read_once(what: str, read: Callable[[], T]) -> T:
    """The result of ``read``, or what it returned before inside ``check``."""
    known = _ALREADY_READ.get()
    if known is None:
        return read()
    if what not in known:
        known[what] = read()
    found: T = known[what]
    return found


def _read(task: _Task) -> tuple[SequenceStore, int]:
    """Let the model read the missing sequences; return the store and the number of sequences written."""
    description = _describe(task.settings)
    if (stored := task.stored) is not None:
        inputs = combine_inputs(task.settings, description.provenance, stored.provenance["inputs"])
        store = task.open_store(stored.sizes, stored.layers, inputs, describe_device(description.device))
        if not set(store.find_missing()) & set(task.sequences):
            return store, 0
    return _extract(task, description)


def _extract(task: _Task, description: Description) -> tuple[SequenceStore, int]:
    """Compute and write the missing sequences; return the store and the number of sequences written."""
    settings = task.settings
    windows = _select_windows(settings, task.pin_corpus(), description)
    _warn_of_text(description, windows)
    _check_vocabulary(description, windows.tokens)
    probe_tokens = _select_probe(settings, description)
    model = models.load(description)
    with _refuse_without_memory(settings):
        attention = probe(model, torch.from_numpy(windows.tokens[:1, :PROBE_TOKENS]))
    sizes, missing = _compute_sizes(settings, attention.layers), task.find_missing()
    task.ask(sizes, missing)
    if missing and missing[0] > task.sequences.start:  # that of an earlier run, which was stopped
        size = int(SequenceStore.open(task.path, TENSORS).read("batch", missing[0] - 1))
    else:
        size = choose_batch_size(settings, attention, model.device)
    read = read_batches(model, attention, windows.tokens, missing, settings, size, probe_tokens)
    query = settings.query_positions[0]
    partial_text = missing and query + 1 < settings.context_length
    with _refuse_without_memory(settings):
        alone = read_alone(model, attention, windows.tokens[missing[0]], query) if partial_text else None
    first = list(islice(read, 1))
    _check_all(first, settings, alone)  # before the store is made: if the model fails, nothing is left on disk
    with _translate_errors(task):
        inputs = _describe_inputs(description, attention, windows)
        store = task.open_store(sizes, attention.layers, inputs, describe_device(description.device))
        _write_all(_iterate_batches(first, read), partial(_write, store, settings), _make_bar(task, missing))
    return store, len(missing)


def _warn_of_text(description: Description, windows: Windows) -> None:
    """Say what position 0 is unless it is BOS, how many special tokens were made of text, and what was lost."""
    name, start = escape_unprintable(description.source.name), description.provenance["tokenizer"]["start"]
    if not start:
        first = escape_unprintable(repr(next(decode_sequences(description.tokenizer, windows.tokens[:1]))[0]))
        logger.warning(
            "sequences of '%s' begin with no special token: position 0 is text, %s in the first", name, first
        )
    elif int(windows.tokens[0, 0]) != description.tokenizer.bos_token_id:
        tokens = escape_unprintable(" ".join(start))
        logger.warning("sequences of '%s' begin with %s, not with BOS: position 0 is %s", name, tokens, start[0])
    if number := windows.counts.special_tokens:
        logger.warning("the tokenizer of '%s' took spellings in the text for special tokens, %d in all", name, number)
    if number := windows.counts.lost_characters:
        message = "the tokenizer of '%s' has no token for %d characters of the text, which the model does not read"
        logger.warning(message, name, number)


@contextmanager
def _refuse_without_memory(settings: ExtractionSettings) -> Iterator[None]:
    """Refuse the study if memory runs out inside the context, in which the model reads one text."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if models.is_out_of_memory(error):
            refuse_for_memory(settings)
        raise


def _make_bar(task: _Task, missing: Sequence[int]) -> tqdm:
    total = len(task.sequences)
    return tqdm(missing, total=total, initial=total - len(missing), unit="sequence", disable=None)


def _check_all(first: Sequence[Batch], settings: ExtractionSettings, alone: Tensor | None) -> None:
    """Check batches without keeping a reference to one; ``alone``: the first query of the first, read by itself."""
    for batch in first:
        check_numbers(batch, settings)
        if alone is not None:
            whole = batch.captured["attention"][:, batch.wanted[0] - batch.first, 0]
            check_row(
                f"The model '{settings.model.id}'",
                alone,
                whole,
                settings.context_length,
                batch.captured["values"].dtype,
            )


def _iterate_batches(first: list[Batch], rest: Iterator[Batch]) -> Iterator[Batch]:
    """Iterate over the batch removed from the list ``first``, so that it is freed early, and then the rest."""
    while first:
        yield first.pop()
    yield from rest


def _write_all(read: Iterable[Batch], write: Callable[[Batch], int], bar: tqdm) -> None:
    """Write batches in a separate thread, each while the next is computed and before the one after that is computed."""
    with bar, logging_redirect_tqdm(), ThreadPoolExecutor(max_workers=1) as writer:
        waiting: Future[int] | None = None
        for batch in read:
            if waiting is not None:
                bar.update(waiting.result())
            waiting = writer.submit(write, batch)
        if waiting is not None:
            bar.update(waiting.result())


def _write(store: SequenceStore, settings: ExtractionSettings, batch: Batch) -> int:
    check_numbers(batch, settings)
    for index in batch.wanted:
        store.write(index, _build_arrays(batch, index - batch.first, settings))
    return len(batch.wanted)


def _build_arrays(batch: Batch, row: int, settings: ExtractionSettings) -> dict[str, NDArray[Any]]:
    """The arrays of one sequence of a batch as stored; views, except for value states of another type."""
    captured = batch.captured
    tensors = {name: tensor[:, row] for name, tensor in (captured.tensors | batch.probed).items()}
    tensors |= {name: tensors[name].transpose(0, 1) for name in ("attention", "learned_sink")}  # query by query
    tensors["values"] = tensors["values"].to(getattr(torch, settings.values))
    if batch.first + row >= READ_SEQUENCES:
        tensors.pop("query_keys", None)
    return {
        **{name: tensor.numpy() for name, tensor in tensors.items()},
        "tokens": batch.tokens[row],
        "first_key": captured.first_key.numpy(),
        "query_position": np.array(settings.query_positions, np.int32),
        "batch": np.array(batch.size, np.int32),
    }


def _compute_sizes(settings: ExtractionSettings, layers: Sequence[LayerSize]) -> dict[str, int]:
    largest = find_widest(layers)
    return {
        "sequence": settings.sequences,
        "query": len(settings.query_positions),
        "layer": len(layers),
        "head": largest.heads,
        "kv_head": largest.kv_heads,
        "key": settings.context_length,
        "head_dim": largest.head_dim,
    }


def _describe_inputs(description: Description, attention: Attention, windows: Windows) -> dict[str, Any]:
    known = description.provenance
    probed = dict(zip(PROBED, (attention.path, list(attention.kinds)), strict=True))
    counted = {name: getattr(windows.counts, name) for name in COUNTED}
    corpus = {"sha256": windows.sha256, "revision": windows.revision, **counted}
    return {**known, "model": known["model"] | probed, "corpus": corpus}


def _check_vocabulary(description: Description, tokens: NDArray[np.int32]) -> None:
    """Refuse a tokenizer with ids for which the model has no embeddings."""
    largest, known = int(tokens.max()), description.config.get_text_config(decoder=True).vocab_size
    if largest >= known:
        raise UserError(
            f"The tokenizer of the model '{description.source.name}' gives token id {largest}, but the model knows "
            f"{known} tokens; save the tokenizer that it was trained with in its directory"
        )


@contextmanager
def _translate_errors(task: _Task) -> Iterator[None]:
    """Raise errors that a user can fix as a ``UserError``: a full disk, a location that cannot be written to."""
    path = task.path
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise UserError(
                f"The disk is full: {path} keeps {task.count_finished()} of {task.settings.sequences} sequences; "
                "free space and run again, the run continues after them"
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}:
            raise UserError(
                f"The store {path} cannot be written ({error.strerror}); choose another location with --home, "
                "or only for tensors with ATTENTION_GEOMETRY_TENSORS"
            ) from error
        raise


def _compute_row_sum_deviation(store: SequenceStore, sequences: Iterable[int]) -> float | None:
    """Largest deviation from 1 of a head's total weight of keys and learned sink, over some sequences.

    Reads one sequence at a time, as its chunks hold all queries; None if the weights have been dropped.
    """
    if "attention" in store.dropped:
        return None
    there, largest = find_present_heads(store), [0.0]
    for index in sequences:
        sums = store.read("attention", index).sum(axis=-1, dtype=np.float64) + store.read("learned_sink", index)
        largest.append(np.abs(sums[:, there] - 1).max())
    return float(np.max(largest))  # NaN if any is, unlike max()
