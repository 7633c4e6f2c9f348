"""Compiled templates, kept from one process to the next: compiling all of them takes longer than most commands."""

import os
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket


class TemplateCache(FileSystemBytecodeCache):
    """The compiled templates of an environment, beside the compiled code of the module that makes it.

    They are compiled again if their text or that module has changed, and each time if the folder cannot be written.
    """

    def __init__(self, module: Path) -> None:
        folder = module.parent / "__pycache__"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
        super().__init__(os.fspath(folder), "template-%s.cache")
        self._settings = module.read_text(encoding="utf-8")

    def get_source_checksum(self, source: str) -> str:
        """A digest of a template and of the module that has the settings with which it is compiled."""
        return super().get_source_checksum(self._settings + source)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template that was kept, if there is one that is not damaged."""
        with suppress(OSError, EOFError, ValueError, UnpicklingError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a compiled template, if possible."""
        with suppress(OSError):
            super().dump_bytecode(bucket)
