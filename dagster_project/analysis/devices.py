"""The CUDA device that computes metrics, if there is one, and what is said if it fails."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from storage.errors import UserError

CUDA_WORKERS = 4
"""Largest number of blocks at once on a CUDA device, which computes one at a time while the others are read."""


def find_cuda_device(provenance: Mapping[str, Any]) -> str | None:
    """The CUDA device for metrics if the tensors were computed on one and one is available: the study's if possible."""
    if not provenance["versions"]["device"].startswith("cuda"):
        return None
    import torch

    present = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    device = str(provenance["settings"]["device"])
    return device if device in present else "cuda" if present else None


@contextmanager
def translate_device_errors(name: str, device: str | None) -> Iterator[None]:
    """Raise UserError, with a remedy, if a CUDA device has too little memory, is lost or cannot be used."""
    try:
        yield
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
        if device is None:
            raise
        why = " ".join(str(error).partition(". ")[0].split())
        raise UserError(
            f"The metrics of study '{name}' could not be computed on the device '{device}' ({why}); "
            f"CUDA_VISIBLE_DEVICES= attention-geometry run {name} computes them on the CPU"
        ) from error
