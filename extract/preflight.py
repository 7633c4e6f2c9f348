"""What can be refused of an extraction at once: inputs that are not there, devices that the machine does not have.

Holds ``check_inputs`` and ``check_device``. What does not belong here: what takes reading or a library to tell
(``extract.models``, ``extract.corpora``). Importing this module loads neither torch nor transformers.
"""

import ctypes
import sys
from pathlib import Path

from extract import text_files
from extract.identity import checkpoint, is_local_corpus, is_local_model
from extract.settings import EMBEDDED, SYNTHETIC, ExtractionSettings
from storage.errors import UserError


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse a local model or corpus that is not there or cannot be one; nothing of weights and text is read.

    Raises
    ------
    UserError
        As ``Checkpoint.open``, ``Checkpoint.check_tokenizer`` and ``text_files.files``.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        checkpoint(settings.model).check_tokenizer()
    if settings.corpus.id != EMBEDDED and is_local_corpus(settings.corpus):
        text_files.files(settings.corpus)


def check_device(name: str, *, needs_gpu: bool = False) -> None:
    """Refuse a device that this machine surely does not have, without PyTorch; the rest is left to it.

    Raises
    ------
    UserError
        If it is an Apple GPU elsewhere than on macOS, or an NVIDIA GPU that the driver does not count; if a GPU is
        needed, whatever its name, and there is none.
    """
    if needs_gpu and _count_gpus() == 0:
        msg = (
            "The study needs a GPU (needs_gpu), and this machine has none; run it where there is one, or describe it "
            "under another --name, which leaves that out"
        )
        raise UserError(msg)
    if name == "mps" and sys.platform != "darwin":
        msg = "The device 'mps' is asked for, but this machine has none; use device: auto or cpu"
        raise UserError(msg)
    if name.startswith("cuda") and (found := _count_gpus()) is not None:
        index = int(name.partition(":")[2] or 0)
        if index >= found:
            msg = (
                f"The device '{name}' is asked for, but this machine has {found} CUDA devices; use device: auto or cpu"
            )
            raise UserError(msg)


def _count_gpus() -> int | None:
    """NVIDIA GPUs that the driver gives this process; None where AMD's driver, or another system, has to say."""
    if sys.platform != "linux" or Path("/dev/kfd").exists():
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
