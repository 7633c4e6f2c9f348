"""What killed and running processes leave half-written, by the names that this program gives it."""

import subprocess
import sys


def ended() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def unfinished(name: str, process: int, kind: str = "partial") -> str:
    """The name of what a process writes to be renamed to ``name``, or of what it has set aside."""
    return f"{name}.{process:08x}{'0123456789abcdef' * 2:.24}.{kind}"
