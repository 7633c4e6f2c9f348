"""Environment that a store is made in: the device, and the versions of the program and its numerical libraries."""

import platform
from importlib.metadata import PackageNotFoundError, version

import torch


def list_versions(device: str) -> dict[str, str]:
    """The part of the provenance on versions; ``device`` is the result of ``describe_device``."""
    return {
        "attention-geometry": _find_own_version(),
        "device": device,
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "tokenizers": version("tokenizers"),
        "torch": torch.__version__,  # includes the build, unlike the version of the package
        "transformers": version("transformers"),
        "zarr": version("zarr"),
    }


def describe_device(device: torch.device) -> str:
    """The type of the device, for CUDA with the name of the GPU."""
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def _find_own_version() -> str:
    try:
        return version("attention-geometry")
    except PackageNotFoundError:
        return "not installed"
