"""Immediate checks of an extraction: missing inputs, and devices that the machine does not have.

Checks that need to read files or load a library are in ``extract.checks``, ``extract.models`` and ``extract.corpora``.
Importing this module loads neither torch nor transformers.
"""

import ctypes
import sys
from pathlib import Path

from extract import text_files
from extract.identity import is_local_corpus, is_local_model, open_model
from extract.settings import BUILT_IN, SYNTHETIC, ExtractionSettings
from storage.errors import UserError


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse a local model or corpus that is missing or of a wrong kind; neither weights nor text are read.

    Raises
    ------
    UserError
        As ``open_model``, ``Checkpoint.check_tokenizer`` and ``text_files.find_files``.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        open_model(settings.model).check_tokenizer()
    if settings.corpus.id not in BUILT_IN and is_local_corpus(settings.corpus):
        text_files.find_files(settings.corpus)


def check_device(name: str, *, needs_gpu: bool = False) -> None:
    """Refuse a device that this machine certainly does not have, without PyTorch; other cases are left to PyTorch.

    Raises
    ------
    UserError
        If it is an Apple GPU on a system other than macOS, or an NVIDIA GPU that the driver does not list; or if any
        GPU is needed and there is none.
    """
    if needs_gpu and _count_gpus() == 0:
        msg = (
            "The study needs a GPU (needs_gpu), but this machine has none; run it on a machine with a GPU, or describe "
            "it under another --name without needs_gpu"
        )
        raise UserError(msg)
    if name == "mps" and sys.platform != "darwin":
        msg = "The device 'mps' is requested, but this machine has none; use device: auto or cpu"
        raise UserError(msg)
    if name.startswith("cuda") and (found := _count_gpus()) is not None:
        index = int(name.partition(":")[2] or 0)
        if index >= found:
            msg = (
                f"The device '{name}' is requested, but this machine has {found} CUDA devices; use device: auto or cpu"
            )
            raise UserError(msg)


def _count_gpus() -> int | None:
    """Number of NVIDIA GPUs visible to this process; None with AMD's driver or on systems other than Linux."""
    if sys.platform != "linux" or Path("/dev/kfd").exists():
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
