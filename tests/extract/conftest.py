"""What the tests of models share."""

from collections.abc import Iterator

import pytest
import torch

from extract.hub import silence_libraries


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
