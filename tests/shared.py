"""What is built once per run of the tests, and shared by the processes that run them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def shared(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder that ``build`` fills, given it empty; built by the first process that asks for it, and only read."""
    root = factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "shared"
    root.mkdir(exist_ok=True)
    return make_once(root, name, build)


def make_once(root: Path, name: str, build: Callable[[Path], object]) -> Path:
    """The folder of this name in ``root`` that ``build`` fills, as ``shared``."""
    folder, built = root / name, root / f"{name}.built"
    with FileLock(root / f"{name}.lock"):
        if not built.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what is left of a process that failed
            folder.mkdir()
            build(folder)
            built.touch()
    return folder
