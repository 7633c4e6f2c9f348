"""Immediate checks of where an extraction runs: the devices of the machine, and the connection to the hub.

Checks of the inputs are in ``extract.checks``; those that load a library are in ``extract.models`` and
``extract.corpora``.
Importing this module loads neither torch nor transformers.
"""

import ctypes
import sys
from pathlib import Path

from extract.hub import is_cached, is_hub_reachable
from extract.identity import is_local_corpus, is_local_model
from extract.settings import SYNTHETIC, ExtractionSettings
from storage.errors import UserError


def check_hub(settings: ExtractionSettings) -> None:
    """Refuse (``UserError``) a model or corpus of the hub that does not answer, unless a part of it is in the cache."""
    if settings.model.id == SYNTHETIC:
        return
    for what, name, local, kind in (
        ("model", settings.model.id, is_local_model(settings.model), "directory"),
        ("corpus", settings.corpus.id, is_local_corpus(settings.corpus), "file or directory"),
    ):
        if not local and not is_cached(name, what) and not is_hub_reachable():
            raise UserError(
                f"The {what} '{name}' is neither a local {kind} nor in the local cache, and the Hugging Face hub "
                f"cannot be reached; check the network and HF_HUB_OFFLINE, or give a local {kind}"
            )


def check_device(name: str, *, needs_gpu: bool = False) -> None:
    """Refuse (``UserError``) a device that this machine certainly does not have, without loading PyTorch.

    That is an Apple GPU elsewhere than on macOS, an NVIDIA GPU that the driver does not list, and any GPU that is
    needed where there is none; other cases are left to PyTorch.
    """
    if needs_gpu and _count_gpus() == 0:
        raise UserError(
            "The study needs a GPU (needs_gpu), but this machine has none; run it on a machine with a GPU, or describe "
            "it under another --name without needs_gpu"
        )
    if name == "mps" and sys.platform != "darwin":
        raise UserError("The device 'mps' is requested, but this machine has none; use device: auto or cpu")
    if name.startswith("cuda") and (devices := _count_gpus()) is not None:
        index = int(name.partition(":")[2] or 0)
        if index >= devices:
            here = f"this machine has {devices} CUDA devices"
            raise UserError(f"The device '{name}' is requested, but {here}; use device: auto or cpu")


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
