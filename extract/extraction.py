"""Extraction: a model reads the chosen sequences, and what its heads saw lands in the tensor store.

Holds the order of the work, batches, the overlap of computing and writing, and the provenance. What does not belong
here: how attention is captured (``extract.capture``), models (``extract.models``), text (``extract.corpora``), what
a synthetic study is drawn from (``extract.synthetic``), the store's format (``storage``), and anything computed from
the tensors (``geometry``).
"""

import errno
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
import zarr
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import PreTrainedModel

from extract import corpora, models, synthetic
from extract.capture import Captured, capture, probe
from extract.corpora import Windows
from extract.hub import quiet
from extract.models import Description
from extract.settings import SYNTHETIC, ExtractionSettings
from storage.arrays import TENSORS
from storage.errors import UserError
from storage.sequences import Provenance, SequenceStore

PROBE_TOKENS = 64
"""Length of the sequence a model is tried on before the work begins."""


@dataclass(frozen=True)
class ExtractionReport:
    """What an extraction did."""

    path: Path
    sequences: int
    """Sequences in the store."""
    written: int
    """Sequences written this time."""
    bytes: int
    """Of the store on disk."""
    documents_read: int
    documents_skipped: int
    """Documents read that were too short for one sequence."""
    row_sum_deviation: float
    """Largest deviation from 1 of the sum of one head's weights, over the whole store as read from disk."""
    seconds: float


@dataclass(frozen=True)
class _Batch:
    """Consecutive sequences and what was captured of them."""

    first: int
    tokens: NDArray[np.int32]
    captured: Captured


@quiet()
def extract(settings: ExtractionSettings, *, study: str, path: Path) -> ExtractionReport:
    """Extract a study into the tensor store at ``path``, or continue where an earlier run was stopped.

    Sequence i is always computed in the same batch, the (i // batch_size)-th, so that a run that was stopped and
    started again ends bit-identical to one that was not. Everything that can be refused is refused before anything is
    made on disk. One batch is written while the next is computed: captured tensors take at most two batches of memory,
    2 * ``batch_bytes``. A finished store is only checked, without loading the model. The model ``synthetic`` is none:
    its sequences are drawn one by one, each the same whichever were drawn before.

    Raises
    ------
    UserError
        If the model, the corpus or the device cannot be used as asked, the store was made with other settings, the
        model's numbers are not finite, or the disk is full or not writable.
    """
    started = time.monotonic()
    extracted = _drawn if settings.model.id == SYNTHETIC else _read
    store, written = extracted(settings, study, path)
    corpus = store.provenance["inputs"]["corpus"]
    return ExtractionReport(
        path=path,
        sequences=settings.sequences,
        written=written,
        bytes=store.bytes_on_disk(),
        documents_read=corpus["documents_read"],
        documents_skipped=corpus["documents_skipped"],
        row_sum_deviation=_row_sum_deviation(store),
        seconds=time.monotonic() - started,
    )


def batch_bytes(sizes: Mapping[str, int], batch_size: int) -> int:
    """Bytes of the captured tensors of one batch: weights, value states, first keys and positions of the queries.

    ``sizes`` are those of the store's axes: ``query``, ``layer``, ``head``, ``kv_head``, ``key``, ``head_dim``.
    """
    weights = prod(sizes[axis] for axis in ("query", "layer", "head", "key"))
    values = prod(sizes[axis] for axis in ("layer", "kv_head", "key", "head_dim"))
    return 4 * (batch_size * (weights + values) + sizes["query"] * (sizes["layer"] + 1))


def _drawn(settings: ExtractionSettings, study: str, path: Path) -> tuple[SequenceStore, int]:
    """Draw what is missing of a synthetic study; returns the store and how many sequences were written."""
    heads = synthetic.planted(settings)
    provenance = _provenance(settings, study, synthetic.INPUTS, torch.device("cpu"))
    with _explained(path, settings.sequences):
        store = SequenceStore.resume(path, TENSORS, synthetic.sizes(settings), provenance)
        missing = store.missing()
        done = settings.sequences - len(missing)
        for index in tqdm(missing, total=settings.sequences, initial=done, unit="sequence", disable=None):
            store.write(index, synthetic.draw_sequence(settings, heads, index))
    return store, len(missing)


def _read(settings: ExtractionSettings, study: str, path: Path) -> tuple[SequenceStore, int]:
    """Let the model read what is missing of a study; returns the store and how many sequences were written."""
    description = models.describe(settings)
    store = _finished(settings, study, path, description)
    return (store, 0) if store is not None else _extract(settings, study, path, description)


def _finished(settings: ExtractionSettings, study: str, path: Path, description: Description) -> SequenceStore | None:
    """The store at ``path`` if it is complete and made of the same things, None if there is work to do."""
    if not path.exists():
        return None
    stored = SequenceStore.open(path, TENSORS)
    checksum = corpora.identity(settings.corpus)
    corpus = {**stored.provenance["inputs"]["corpus"], **({"sha256": checksum} if checksum else {})}
    provenance = _provenance(settings, study, {**description.provenance, "corpus": corpus}, description.device)
    store = SequenceStore.resume(path, TENSORS, stored.sizes, provenance)
    return None if store.missing() else store


def _extract(
    settings: ExtractionSettings, study: str, path: Path, description: Description
) -> tuple[SequenceStore, int]:
    """Compute and write the missing sequences; returns the store and how many were written."""
    windows = corpora.windows(
        settings.corpus, description.tokenizer, settings.context_length, settings.sequences, settings.seed
    )
    _check_vocabulary(description, windows)
    model = models.load(description)
    _check_finite(probe(model, torch.from_numpy(windows.tokens[:1, :PROBE_TOKENS])), settings)
    corpus = {
        "sha256": windows.sha256,
        "documents_read": windows.documents_read,
        "documents_skipped": windows.documents_skipped,
    }
    provenance = _provenance(settings, study, {**description.provenance, "corpus": corpus}, description.device)
    missing = SequenceStore.open(path, TENSORS).missing() if path.exists() else list(range(settings.sequences))
    batches = _batches(model, windows, missing, settings)
    first = [next(batches)]  # before the store is made: a model that fails on it leaves nothing behind
    sizes = _sizes(first[0], settings.sequences)
    with _explained(path, settings.sequences):
        store = SequenceStore.resume(path, TENSORS, sizes, provenance)
        done = settings.sequences - len(missing)
        with tqdm(total=settings.sequences, initial=done, unit="sequence", disable=None) as bar:
            _write_all(store, _all_batches(first, batches), frozenset(missing), bar)
    return store, len(missing)


def _batches(
    model: PreTrainedModel, windows: Windows, missing: Sequence[int], settings: ExtractionSettings
) -> Iterator[_Batch]:
    """Captured batches, each whole, that hold a missing sequence; batch b always starts at b * batch_size."""
    size = settings.batch_size
    for first in sorted({index // size * size for index in missing}):
        tokens = windows.tokens[first : first + size]
        captured = capture(model, torch.from_numpy(tokens), settings.query_positions)
        yield _Batch(first, tokens, _check_finite(captured, settings))


def _all_batches(first: list[_Batch], rest: Iterator[_Batch]) -> Iterator[_Batch]:
    """The batch taken out of the list ``first``, so that it does not stay in memory to the end, then the rest."""
    yield first.pop()
    yield from rest


def _write_all(store: SequenceStore, batches: Iterator[_Batch], missing: frozenset[int], bar: tqdm) -> None:
    """Write batches in a thread of their own, each while the next one is computed."""
    with ThreadPoolExecutor(max_workers=1) as writer:
        waiting: Future[int] | None = None
        for batch in batches:
            if waiting is not None:
                bar.update(waiting.result())
            waiting = writer.submit(_write, store, batch, missing)
        if waiting is not None:
            bar.update(waiting.result())


def _write(store: SequenceStore, batch: _Batch, missing: frozenset[int]) -> int:
    """Write those sequences of a batch that are missing; returns how many."""
    captured, count = batch.captured, 0
    for row, tokens in enumerate(batch.tokens):
        if batch.first + row in missing:
            arrays = {
                "attention": captured.weights[row].numpy(),
                "values": captured.values[row].numpy(),
                "tokens": tokens,
                "first_key": captured.first_key.numpy(),
                "query_position": captured.query_position.numpy(),
            }
            store.write(batch.first + row, arrays)
            count += 1
    return count


def _sizes(batch: _Batch, sequences: int) -> dict[str, int]:
    """Sizes of the store's axes."""
    _, queries, layers, heads, keys = batch.captured.weights.shape
    _, _, kv_heads, _, head_dim = batch.captured.values.shape
    return {
        "sequence": sequences,
        "query": queries,
        "layer": layers,
        "head": heads,
        "kv_head": kv_heads,
        "key": keys,
        "head_dim": head_dim,
    }


def _check_vocabulary(description: Description, windows: Windows) -> None:
    """Refuse a tokenizer whose ids the model has no embeddings for."""
    largest, known = int(windows.tokens.max()), description.config.get_text_config(decoder=True).vocab_size
    if largest >= known:
        msg = (
            f"The tokenizer of the model '{description.source.name}' gives token id {largest}, the model knows {known} "
            "tokens; save the tokenizer it was trained with beside it"
        )
        raise UserError(msg)


def _check_finite(captured: Captured, settings: ExtractionSettings) -> Captured:
    """Refuse weights or value states that are infinite or no numbers; returns what it was given."""
    for layer in range(captured.values.shape[1]):
        if not (captured.weights[:, :, layer].isfinite().all() and captured.values[:, layer].isfinite().all()):
            remedy = (
                "its weights are damaged or it overflows; get another checkpoint"
                if settings.dtype == "float32"
                else f"{settings.dtype} overflows or is too coarse; set dtype to "
                + ("bfloat16 or float32" if settings.dtype == "float16" else "float32")
            )
            msg = f"The model '{settings.model.id}' computes numbers that are not finite in layer {layer}: {remedy}"
            raise UserError(msg)
    return captured


def _provenance(
    settings: ExtractionSettings, study: str, inputs: Mapping[str, Any], device: torch.device
) -> Provenance:
    """What makes the store, as JSON; two runs with equal provenance write equal bytes."""
    return {
        "study": study,
        "settings": settings.model_dump(mode="json"),
        "inputs": dict(inputs),
        "versions": {
            "attention-geometry": _own_version(),
            "device": _device_name(device),
            "numpy": np.__version__,
            "python": platform.python_version(),
            "tokenizers": tokenizers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "zarr": zarr.__version__,
        },
    }


def _own_version() -> str:
    """The installed version of this program."""
    try:
        return version("attention-geometry")
    except PackageNotFoundError:
        return "not installed"


def _device_name(device: torch.device) -> str:
    """The device with the name of its processor where it has one."""
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


@contextmanager
def _explained(path: Path, sequences: int) -> Iterator[None]:
    """Raise what a user can mend as a ``UserError``: a full disk, a place that cannot be written."""
    try:
        yield
    except OSError as error:
        _explain(error, path, sequences)
        raise


def _explain(error: OSError, path: Path, sequences: int) -> None:
    """Raise the ``UserError`` of a system error that a user can mend."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        kept = int(SequenceStore.open(path, TENSORS).finished().sum()) if path.exists() else 0
        msg = (
            f"The disk is full: {path} keeps {kept} of {sequences} sequences; "
            "free space and run again, it continues after them"
        )
        raise UserError(msg) from error
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}:
        msg = f"The store {path} cannot be written ({error.strerror}); choose another data root with --home"
        raise UserError(msg) from error


def _row_sum_deviation(store: SequenceStore) -> float:
    """Largest deviation from 1 of a row sum of the stored weights, read one query of one sequence at a time."""
    attention = store.array("attention")
    sums = (np.asarray(attention[index]).sum(axis=-1, dtype=np.float64) for index in np.ndindex(attention.shape[:2]))
    return float(np.max([np.abs(row - 1).max() for row in sums]))  # NaN if any is, unlike max()
