"""Headers of GGUF files: sound ones are read as ``gguf`` reads them, all others are refused in one line."""

import os
import random
import re
import struct
from pathlib import Path

import pytest

from extract.gguf import header as gguf_header
from extract.gguf.header import HeaderError, read_header
from tests.extract.gguf_files import array, entry, outcome, raw_gguf, tensor, text, write_gguf
from tests.memory import trace

U32, STRING, ARRAY = 4, 8, 9
LLAMA = entry("general.architecture", STRING, text("llama"))
LARGE = 2**60


def named(kind: int, value: bytes, name: str | bytes = "x.y") -> bytes:
    """A file of one entry."""
    return raw_gguf([entry(name, kind, value)])


def of_tensors(*tensors: bytes) -> bytes:
    """A file of an architecture, and tensors."""
    return raw_gguf([LLAMA], tensors)


VOCABULARY = entry("tokenizer.ggml.tokens", ARRAY, array(STRING, 1, text("a")))
HTML = entry("general.architecture", STRING, text("<script>alert(1)</script>"))
HOSTILE: dict[str, tuple[bytes, str]] = {
    "another format": (raw_gguf(magic=b"GGML"), "does not begin with 'GGUF'"),
    "only the magic": (b"GGUF", "ends after 4 bytes, inside its version"),
    "the other byte order": (raw_gguf(version=3 << 24), "with its bytes in the order of another machine"),
    "2^60 tensors": (raw_gguf([LLAMA], counts=(LARGE, 1)), f"says that it has {LARGE:,} tensors"),
    "more entries than there are": (raw_gguf([LLAMA], counts=(0, 9)), "inside|is not printable|two"),
    "a name beyond the file": (raw_gguf([struct.pack("<Q", LARGE)]), "ends after .* inside the name"),
    "a value beyond the file": (named(STRING, struct.pack("<Q", 10**6)), "inside 'x.y'"),
    "a string of 2^60": (named(STRING, struct.pack("<Q", LARGE)), "ends after .* inside 'x.y'"),
    "an array of 2^60": (named(ARRAY, array(U32, LARGE)), "has arrays of more than 2,097,152"),
    "an array of arrays": (named(ARRAY, array(ARRAY, 1, array(U32, 1, b"\0" * 4))), "array of arrays"),
    "an unknown type": (named(99, b"\0" * 8), "has a metadata entry of type 99, 'x.y'"),
    "an entry twice": (raw_gguf([LLAMA, LLAMA]), "has two metadata entries named 'general.architecture'"),
    "control characters": (named(U32, b"\0" * 4, "a\x1b[2Jb\n"), r"whose name is not printable: 'a\\x1b\[2Jb\\n'"),
    "a value that is not text": (named(STRING, text(b"\xff")), "has 'x.y' that is not UTF-8"),
    "no alignment": (named(U32, b"\0" * 4, "general.alignment"), "alignment '0', which is not a power"),
    "no axes": (of_tensors(tensor("t", ())), "has a tensor with 0 axes, 't'"),
    "2^31 axes": (of_tensors(text("t") + struct.pack("<I", 2**31)), "with 2147483648 axes"),
    "half a block": (of_tensors(tensor("t", (33,), 8)), "which Q8_0 in blocks of 32 cannot store"),
    "an unknown type of tensor": (of_tensors(tensor("t", (4,), 4)), "has a tensor of type 4, 't'"),
    "a tensor beyond the file": (of_tensors(tensor("t", (17,))), "but its tensor 't' ends after"),
    "a place that overflows": (of_tensors(tensor("t", (4,), 0, 2**64 - 32)), "but its tensor 't' ends after"),
    "tensors that overlap": (of_tensors(tensor("a", (9,)), tensor("b", (4,), 0, 32)), "overlap, 'a' and 'b'"),
    "a tensor off its alignment": (of_tensors(tensor("t", (4,), 0, 8)), "at a multiple of 32 bytes, 't'"),
    "a tensor twice": (of_tensors(tensor("t"), tensor("t", offset=32)), "has two tensors named 't'"),
    "no tensors": (of_tensors(), "has no architecture or no tensors"),
    "no tokenizer": (of_tensors(tensor("t")), r"has no vocabulary \(tokenizer.ggml.tokens\)"),
    "frequencies that transformers ignores": (
        raw_gguf([LLAMA, VOCABULARY], [tensor("rope_freqs.weight")]),
        r"rescales its rotary positions \(rope_freqs.weight\), which transformers does not read from GGUF",
    ),
    "HTML as an architecture": (raw_gguf([HTML, VOCABULARY], [tensor("t")]), "has the architecture '<script>alert"),
}


@pytest.mark.parametrize("mistake", HOSTILE)
def test_hostile_files_are_refused_in_one_line_and_without_memory(mistake: str, tmp_path: Path) -> None:
    raw, said = HOSTILE[mistake]
    (tmp_path / "hostile.gguf").write_bytes(raw)
    refused, most = trace(lambda: outcome(tmp_path / "hostile.gguf"))
    assert refused is not None
    assert re.search(said, refused), refused
    assert most < 2**24  # of the file, at most the 64 MiB of a header would be read; here it has a few kilobytes


def test_a_header_that_claims_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_header, "HEADER_BYTES", 2**10)
    with pytest.raises(HeaderError, match="has a header of more than 0 MiB"):
        read_header(path)
    monkeypatch.undo()
    monkeypatch.setattr(gguf_header, "ELEMENTS", 300)
    with pytest.raises(HeaderError, match=r"has arrays of more than 300 elements: with 'tokenizer\.ggml\."):
        read_header(path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    generator = random.Random(0)
    for length in [*(generator.randrange(len(whole)) for _ in range(40)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(HeaderError, match=r"ends |does not begin with|more than the"):
            read_header(path)


def test_what_is_not_a_regular_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    for name in ("pipe.gguf", "folder.gguf"):
        assert "is not a regular file; give a .gguf file" in (outcome(tmp_path / name) or "")
    assert "cannot be read (No such file or directory); check its name" in (outcome(tmp_path / "none.gguf") or "")
    assert "cannot be read (its name is not one of a file)" in (outcome(Path("a\0.gguf")) or "")
    assert "cannot be read (File name too long)" in (outcome(tmp_path / f"{'a' * 300}.gguf") or "")


@pytest.mark.slow
def test_damaged_files_are_refused_in_one_line_or_read(tmp_path: Path) -> None:
    """Bits flipped in the header, and lengths, counts and numbers replaced."""
    whole = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    end, generator, refused = whole.index(b"blk.0.attn_norm.weight") + 600, random.Random(7), 0
    for number in range(200):
        spoilt, at = bytearray(whole), generator.randrange(end)
        if number % 2:
            spoilt[at] ^= 1 << generator.randrange(8)
        else:
            spoilt[at : at + 8] = generator.choice((2**60, 2**31, 2**16, 0)).to_bytes(8, "little")
        (tmp_path / "damaged.gguf").write_bytes(spoilt)
        refused += outcome(tmp_path / "damaged.gguf") is not None
    assert 50 < refused < 190
