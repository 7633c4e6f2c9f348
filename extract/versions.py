"""On what a store is made: the device, and the versions of the program and of the libraries that decide its numbers."""

import platform
from importlib.metadata import PackageNotFoundError, version

import torch


def versions(device: str) -> dict[str, str]:
    """The part of the provenance on versions; ``device`` is what ``device_name`` gives."""
    return {
        "attention-geometry": _own_version(),
        "device": device,
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "tokenizers": version("tokenizers"),
        "torch": torch.__version__,  # it names the build, which the version of the package may not
        "transformers": version("transformers"),
        "zarr": version("zarr"),
    }


def device_name(device: torch.device) -> str:
    """The device with the name of its processor where it has one."""
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def _own_version() -> str:
    """The installed version of this program."""
    try:
        return version("attention-geometry")
    except PackageNotFoundError:
        return "not installed"
