"""Checks that a study fits in the free memory, before anything is computed.

The memory of libraries was measured on a study of two short sequences with two cores; the rest follows from sizes.
"""

from storage.errors import UserError
from storage.memory import measure_free_addresses, measure_free_memory

LIBRARIES = 1_200_000_000  # Bytes of memory that a run takes for libraries and a tiny model
ADDRESSES = 4_500_000_000  # Bytes of address space that a run takes, most of which threads reserve and never use


def check_start() -> None:
    """Refuse a run (``UserError``) unless ``LIBRARIES`` of memory and ``ADDRESSES`` of address space are free.

    Call it before the libraries are loaded.
    """
    check_memory("A run", LIBRARIES, "close other programs, or raise the limit of its control group")
    addresses = measure_free_addresses()
    if addresses is not None and addresses < ADDRESSES:
        raise UserError(
            f"A run needs {format_bytes(ADDRESSES)} of address space, but {format_bytes(addresses)} are allowed; raise "
            "the limit (ulimit -v), or limit memory by a control group instead"
        )


def check_extraction(name: str, one: int) -> None:
    """Refuse an extraction if not even one sequence fits in memory.

    A model that computes on the CPU needs memory for its weights in addition; they are read from the file on demand.
    ``name`` is the study, ``one`` the bytes of the tensors of one sequence; ``UserError`` if less is free than two
    copies take: as the model returns them, and as they are stored.
    """
    less = "reduce context_length, or set queries to fewer positions"
    check_memory(f"Extracting one sequence of '{name}'", 2 * one, less)


def check_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse work (``UserError``) that needs more memory than is free; ``what`` is the subject of the message."""
    if needed > (free := measure_free_memory()):
        raise UserError(f"{what} needs {format_bytes(needed)} of memory, but {format_bytes(free)} are free; {remedy}")


def format_bytes(size: int) -> str:
    """Format a number of bytes as GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
