"""The header of a GGUF file: its metadata, and the name, type, shape and place of every tensor; no tensor is read.

A file is untrusted. The reader of transformers believes all counts and lengths: an array that is longer than the file
takes memory without end. Whatever it reads is therefore checked here first, against the size of the file and the limits
below, in one pass and with memory in proportion to them.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from extract.hub import keep_while_unchanged

HEADER_BYTES = 2**26
"""Largest size in bytes of a header: the vocabulary and merges of a large tokenizer have some 2²⁴."""

ENTRIES = 2**10
"""Most metadata entries: files have some 50, and transformers compares each with all that it does not know."""

TENSORS = 2**16
"""Most tensors."""

ELEMENTS = 2**21
"""Most elements of all arrays together: 2¹⁸ tokens, with their types, scores and merges, have some 2²⁰."""

VERSIONS = (2, 3)
"""Versions of the format that are read; in version 1, counts had 32 bits."""

STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of metadata values, and the codes of ``struct`` of those that have a fixed size."""


class HeaderError(ValueError):
    """What is wrong with a header, as a part of a sentence whose subject is the file."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file."""

    type: str
    """Name of the type that it is stored in, such as ``Q4_1``."""
    shape: tuple[int, ...]
    """In the order of torch: the last axis is contiguous."""
    offset: int
    """Bytes between the first tensor and this one."""
    size: int
    """Number of bytes."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file."""

    metadata: Mapping[str, Any]
    """By name: whole numbers, floats, booleans, strings, and lists of numbers or of strings."""
    tensors: Mapping[str, Tensor]
    """By name."""
    start: int
    """Place in bytes of the first tensor."""


@keep_while_unchanged(most=1)
def read_header(path: Path) -> Header:
    """Read the header of a file, once as long as no other is, and check it against the file's size.

    Afterwards, all lengths and places in the file are inside it, no two tensors overlap, no name occurs twice, arrays
    are not nested, and the limits of this module hold. ``HeaderError`` if any of this is not so, or the file is of
    another format, version or byte order, or holds a type of value or tensor that ``gguf`` does not know.
    """
    with path.open("rb") as file:
        return _Reader(file, os.fstat(file.fileno()).st_size).read()


@dataclass
class _Reader:
    """A position in an open file, from which values are read only if they are inside the file and the limits."""

    file: BinaryIO
    size: int
    at: int = 0
    elements: int = 0

    def read(self) -> Header:
        """Read the whole header."""
        if self.size < 4 or self._take(4, "its first bytes") != b"GGUF":
            raise HeaderError("is not a GGUF file: it does not begin with 'GGUF'")
        version = self._read_number("I", "its version")
        if version not in VERSIONS:
            swapped = " with its bytes in the order of another machine" if not version & 0xFFFF else ""
            raise HeaderError(
                f"is a GGUF file of version {version}{swapped}; versions {' and '.join(map(str, VERSIONS))} are read"
            )
        tensors = self._read_count(TENSORS, "tensors")
        entries = self._read_count(ENTRIES, "metadata entries")
        metadata = self._read_named(entries, "metadata entry", self._read_entry)
        tensor_entries = self._read_named(tensors, "tensor", self._read_tensor)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 2**16 or alignment & (alignment - 1):
            raise HeaderError(f"has general.alignment {str(alignment)[:60]!a}, which is not a power of two up to 65536")
        start = -(-self.at // alignment) * alignment
        _check_places(tensor_entries, start, alignment, self.size)
        return Header(metadata, tensor_entries, start)

    def _read_named(self, count: int, what: str, read: Callable[[str], Any]) -> dict[str, Any]:
        """A number of things, each after its name, by name."""
        named: dict[str, Any] = {}
        for _ in range(count):
            name = self._read_string(f"the name of a {what}")
            if not name or not name.isprintable():
                raise HeaderError(f"has a {what} whose name is not printable: {name[:60]!a}")
            if name in named:
                raise HeaderError(f"has two {'metadata entries' if what[0] == 'm' else 'tensors'} named {_quote(name)}")
            named[name] = read(name)
        return named

    def _read_entry(self, name: str) -> Any:
        kind = self._read_number("I", _quote(name))
        if kind == STRING:
            return self._read_string(_quote(name))
        if kind != ARRAY:
            return self._read_number(_find_code(kind, name), _quote(name))
        kind, count = self._read_number("I", _quote(name)), self._read_number("Q", _quote(name))
        self.elements += count
        if self.elements > ELEMENTS:
            raise HeaderError(
                f"has arrays of more than {ELEMENTS:,} elements: with {_quote(name)} they have {self.elements:,}"
            )
        if kind == STRING:
            return [self._read_string(f"an element of {_quote(name)}") for _ in range(count)]
        if kind == ARRAY:
            raise HeaderError(f"has an array of arrays, {_quote(name)}, which is not read")
        code = f"<{count}{_find_code(kind, name)}"
        return list(struct.unpack(code, self._take(struct.calcsize(code), _quote(name))))

    def _read_tensor(self, name: str) -> Tensor:
        axes = self._read_number("I", _quote(name))
        if not 1 <= axes <= 4:
            raise HeaderError(f"has a tensor with {axes} axes, {_quote(name)}; 1 to 4 are read")
        shape = struct.unpack(f"<{axes}Q", self._take(8 * axes, _quote(name)))[::-1]
        number, offset = self._read_number("I", _quote(name)), self._read_number("Q", _quote(name))
        kind, block, size = _find_tensor_type(number, name)
        if min(shape) < 1 or shape[-1] % block:
            raise HeaderError(
                f"has a tensor of shape {list(shape)}, {_quote(name)}, which {kind} in blocks of {block} cannot store"
            )
        return Tensor(kind, shape, offset, prod(shape) // block * size)

    def _read_count(self, most: int, what: str) -> int:
        """A number of things that follow, each of which takes at least 8 bytes."""
        count: int = self._read_number("Q", f"its number of {what}")
        if count > min(most, (self.size - self.at) // 8):
            raise HeaderError(
                f"says that it has {count:,} {what}, more than the {self.size:,} bytes of the file or the limit hold"
            )
        return count

    def _read_number(self, code: str, what: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(code), what))[0]

    def _read_string(self, what: str) -> str:
        try:
            return self._take(self._read_number("Q", what), what).decode()
        except UnicodeDecodeError as error:
            raise HeaderError(f"has {what} that is not UTF-8") from error

    def _take(self, count: int, what: str) -> bytes:
        """The next bytes, which must be inside the file and the largest header."""
        if self.at + count > self.size:
            raise HeaderError(f"ends after {self.size:,} bytes, inside {what}")
        self.at += count
        if self.at > HEADER_BYTES:
            raise HeaderError(f"has a header of more than {HEADER_BYTES >> 20} MiB")
        content = self.file.read(count)
        if len(content) < count:  # the file has been cut since its size was read
            raise HeaderError(f"ends inside {what}")
        return content


def _check_places(tensors: Mapping[str, Tensor], start: int, alignment: int, size: int) -> None:
    """Refuse tensors that are not aligned, not inside the file, or not apart from each other."""
    end, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        if tensor.offset % alignment:
            raise HeaderError(f"has a tensor that does not begin at a multiple of {alignment} bytes, {_quote(name)}")
        if tensor.offset < end:
            raise HeaderError(f"has tensors that overlap, {_quote(before)} and {_quote(name)}")
        end, before = tensor.offset + tensor.size, name
        if start + end > size:
            raise HeaderError(f"ends after {size:,} bytes, but its tensor {_quote(name)} ends after {start + end:,}")


def _find_code(kind: int, name: str) -> str:
    if kind not in SCALARS:
        raise HeaderError(f"has a metadata entry of type {kind}, {_quote(name)}, which GGUF does not have")
    return SCALARS[kind]


def _find_tensor_type(number: int, name: str) -> tuple[str, int, int]:
    """The name of a tensor's type, and the numbers of elements and of bytes of one of its blocks."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
        return kind.name, *GGML_QUANT_SIZES[kind]
    except (KeyError, ValueError) as error:
        raise HeaderError(f"has a tensor of type {number}, {_quote(name)}, which is not known") from error


def _quote(name: str) -> str:
    return f"'{name}'" if len(name) <= 60 else f"'{name[:57]}…'"
