"""Immediate checks of a study's inputs, and of where it runs, that load neither torch, transformers nor datasets.

``check_inputs`` refuses a study within a fraction of a second; ``check_hub`` alone may ask the network. Checks that
need a library are in ``extract.models`` and ``extract.corpora``.
"""

import ctypes
import sys
from pathlib import Path

from extract import text_files
from extract.checkpoints import Checkpoint
from extract.gguf_models import GgufModel
from extract.hub import is_cached, is_hub_reachable
from extract.identity import is_local_corpus, is_local_model, open_model
from extract.settings import BUILT_IN, SYNTHETIC, ExtractionSettings
from extract.tensors import check_sizes, count_positions, read_tensor_shapes
from storage.errors import UserError


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse (``UserError``) a local model or corpus that is missing or not valid, or has too few positions.

    The headers of weights files and the configuration are read; neither weights nor text are. Ids of the hub and the
    device are not checked.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        check_model(open_model(settings.model), settings.context_length)
    if is_local_corpus(settings.corpus) and settings.corpus.id not in BUILT_IN:
        text_files.find_files(settings.corpus)


def check_model(description: Checkpoint | GgufModel, context_length: int) -> None:
    """Refuse a local model (``UserError``) with damaged weights, without a tokenizer, or with too few positions.

    A GGUF file has been checked when it was opened, except for its positions.
    """
    if isinstance(description, GgufModel):
        check_positions(description.name, description.positions, context_length)
        return
    check_checkpoint(description)
    description.check_tokenizer()
    check_positions(description.name, count_positions(description.config), context_length)


def check_checkpoint(description: Checkpoint) -> None:
    """Refuse (``UserError``) damaged weights, and a configuration whose sizes do not fit them; random ones fit any."""
    check_sizes(
        description.files.name, description.config, read_tensor_shapes(description) if description.weights else None
    )


def check_positions(name: str, most: int | None, context_length: int) -> None:
    """Refuse a context (``UserError``) longer than the model's positions, ``most``; None if there is no known limit."""
    if most is not None and context_length > most:
        raise UserError(
            f"The model '{name}' reads at most {most} tokens, but context_length is {context_length}; "
            f"set context_length to {most} or less"
        )


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
