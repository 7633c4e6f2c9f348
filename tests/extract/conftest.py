"""What the tests of models share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from extract.hub import silence_libraries
from tests.extract.tiny import write_checkpoint


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint, only read."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    """A copy of ``original``, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "tiny"))


@pytest.fixture
def noiseless() -> Iterator[None]:
    """Libraries tell nothing, and draw no bars."""
    with silence_libraries():
        yield


@pytest.fixture
def inference() -> Iterator[None]:
    """Tensors keep no gradients."""
    with torch.inference_mode():
        yield
