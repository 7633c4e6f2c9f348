"""That kernels are compiled is told once, before the first is."""

import logging

import numba
import pytest

from attention_geometry.compilation import tell_of_compilation


def test_it_is_told_once_before_the_first_kernel_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "attention_geometry")
    tell_of_compilation.__wrapped__()  # also if another test has
    kernel = numba.njit(lambda number: number + 1)
    assert caplog.messages == []
    assert kernel(1) == 2
    assert kernel(1.5) == 2.5
    (told,) = caplog.messages
    assert told.startswith("compiling kernels, ")
