"""The memory that a study takes, compared with what there is before anything is computed, and refused where it is less.

What libraries take was measured on a study of two short sequences with two cores; the rest follows from sizes.
"""

from collections.abc import Mapping

from dagster_project.steps.space import gigabytes
from storage.errors import UserError
from storage.memory import free_addresses, free_memory

LIBRARIES = 1_200_000_000
"""Bytes of memory that a run takes for libraries and a model of next to no size."""

ADDRESSES = 4_500_000_000
"""Bytes of address space that it takes, most of which are reserved by threads and never used."""


def check_start() -> None:
    """Refuse a run where there is no memory for the libraries that it is made with; call it before they are loaded.

    Raises
    ------
    UserError
        If there is less than ``LIBRARIES`` of memory or ``ADDRESSES`` of address space.
    """
    check_memory("A run", LIBRARIES, "close other programs, or raise the limit of its control group")
    addresses = free_addresses()
    if addresses is not None and addresses < ADDRESSES:
        msg = (
            f"A run needs {gigabytes(ADDRESSES)} of address space, but {gigabytes(addresses)} are allowed; raise the "
            "limit (ulimit -v), or limit memory by a control group instead"
        )
        raise UserError(msg)


def check_extraction(name: str, sizes: Mapping[str, int]) -> None:
    """Refuse an extraction of which not even one sequence fits in memory.

    The weights of the model come on top, where it computes on the CPU; they are read from the file as they are needed.

    Parameters
    ----------
    name
        The study.
    sizes
        Sizes of the tensor store's axes.

    Raises
    ------
    UserError
        If less is free than two copies of a sequence's tensors take: as the model gives them, and as they are stored.
    """
    from storage.zarr.arrays import TENSORS
    from storage.zarr.space import sequence_bytes

    less = "set context_length to less, or queries to fewer positions"
    check_memory(f"A run, to extract one sequence of '{name}',", 2 * sequence_bytes(TENSORS, sizes), less)


def check_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse what needs more bytes than are free; ``what`` is the subject of the sentence that says so.

    Raises
    ------
    UserError
        If less is free.
    """
    if needed > (free := free_memory()):
        msg = f"{what} needs {gigabytes(needed)} of memory, but {gigabytes(free)} are free; {remedy}"
        raise UserError(msg)
