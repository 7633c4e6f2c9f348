"""The plain DuckDB shell, of another version than the library."""

import subprocess
import sys
from pathlib import Path

from storage.warehouse.connection import ENTRY

SHELL = Path(sys.executable).with_name("duckdb")
"""The plain shell of another version than the library's: DuckDB 1.5."""


def in_shell(folder: Path, *statements: str, cwd: Path | None = None) -> str:
    """What the plain shell prints after it has read the script and then these statements."""
    commands = [part for statement in statements for part in ("-c", statement)]
    arguments = [SHELL, "-csv", "-noheader", "-init", folder / ENTRY, *commands]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    assert "Error" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode == 0
    return done.stdout
