"""Extraction in processes of their own, which can be killed: each is forked from one that has imported everything."""

import multiprocessing
import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

import numpy as np

from extract import batches
from extract.extraction import extract
from extract.settings import ExtractionSettings
from storage.files.places import LocalPlace
from storage.zarr.sequences import SequenceStore

write, capture = SequenceStore.write, batches.capture


def start(
    settings: ExtractionSettings,
    path: Path,
    *,
    half: int | None = None,
    held: int | None = None,
) -> BaseProcess:
    """Begin to extract in another process.

    ``half`` is a sequence in whose writing it kills itself; ``held`` one before whose writing it waits to be killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.extract.killed", "transformers.models.mistral.modeling_mistral"])
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])):
        process = context.Process(target=_extract, args=(settings, path, half, held))
        process.start()
    return process


def _extract(settings: ExtractionSettings, path: Path, half: int | None, held: int | None) -> None:
    def write_some(store: SequenceStore, sequence: int, arrays: dict[str, np.ndarray]) -> None:
        if sequence == half:
            store.array("values")[sequence] = arrays["values"]
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600 if sequence == held else 0)
        write(store, sequence, arrays)

    SequenceStore.write = write_some
    extract(settings, study="tiny", path=LocalPlace(path))


def narrow(most: int) -> object:
    """``capture`` in a memory that has room for ``most`` sequences."""
    import torch

    def fails(model: object, attention: object, ids: torch.Tensor, *others: object, **named: object) -> object:
        if len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return capture(model, attention, ids, *others, **named)

    return fails
