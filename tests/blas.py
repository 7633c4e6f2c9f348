"""The threads of BLAS, as tests look at them."""

import scipy.linalg  # noqa: F401  its BLAS is one of those that are limited
from threadpoolctl import threadpool_info


def blas_threads() -> set[int]:
    """How many threads the BLAS libraries of this process may use."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
