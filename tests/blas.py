"""The threads of BLAS, as tests look at them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import scipy.linalg  # noqa: F401  its BLAS is one of those that are limited
from threadpoolctl import threadpool_info, threadpool_limits


def blas_threads() -> set[int]:
    """How many threads the BLAS libraries of this process may use."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@contextmanager
def two_blas_threads() -> Iterator[None]:
    """Let BLAS use two threads; a test is skipped where it cannot."""
    with threadpool_limits(limits=2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS cannot use two threads here")
        yield
