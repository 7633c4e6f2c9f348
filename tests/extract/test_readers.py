"""Local files and directories as corpora: the same documents in every form, and the one line for each mistake."""

import bz2
import errno
import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extract.settings import CorpusSettings
from extract.text_files import find_files, hash_files
from extract.texts import readers
from extract.texts.readers import read_documents
from tests.extract.tiny import text
from tests.memory import trace
from tests.refusals import read_refusal

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def corpus(name: object, **others: object) -> CorpusSettings:
    return CorpusSettings(id=str(name), **others)


def read(name: object, **others: object) -> list[str]:
    return list(read_documents(corpus(name, **others)))


def refusal(name: object, **others: object) -> str:
    """The line that reading refuses with."""
    message = read_refusal(read, name, **others)
    assert str(name) in message
    return message


def as_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)).encode()


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


TEXTS = [text(40, seed) + "é€𝄞" for seed in range(5)]


def test_every_kind_of_file_gives_the_same_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": TEXTS, "other": range(5)}), tmp_path / "a.parquet", row_group_size=2)
    assert read(tmp_path / "a.parquet", column="body") == TEXTS
    for suffix, pack in {"": bytes, **PACKERS}.items():
        assert read(put(tmp_path / f"a.jsonl{suffix}", pack(as_lines(TEXTS)))) == TEXTS
        assert read(put(tmp_path / f"a.jsonl.txt{suffix}", pack(TEXTS[0].encode()))) == TEXTS[:1]
    assert read(put(tmp_path / "none.txt.gz", gzip.compress(b""))) == []
    assert read(put(tmp_path / "b.jsonl", b'{"text": null}\n\n{"text": "b"}\n')) == ["", "b"]
    members = b"".join(gzip.compress(as_lines([one])) for one in TEXTS)
    assert read(put(tmp_path / "a.jsonl.gz", members)) == TEXTS


def test_a_text_file_is_cut_at_line_ends_into_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 100)
    content = text(500) + "é" * 1000 + "\nlast"
    blocks = read(put(tmp_path / "a.txt", b"\xef\xbb\xbf" + content.encode()))
    assert "".join(blocks) == content
    assert max(map(len, blocks)) <= 200
    assert all(block.endswith("\n") for block in blocks if "é" not in block and block != blocks[-1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents 0 to 4 in order of the files' relative paths, whatever their kinds, among files that are none."""
    root = tmp_path / "corpus"
    put(root / "B.txt", TEXTS[0].encode())
    put(root / "a" / "deep" / "er" / "z.jsonl.gz", gzip.compress(as_lines(TEXTS[1:2])))
    put(root / "a" / "empty.txt", b"")
    pq.write_table(pa.table({"text": TEXTS[2:4]}), root / "a" / "x.parquet")
    put(root / "b.jsonl", as_lines(TEXTS[4:]))
    for name in ("README.md", "a/notes.pdf", ".hidden.txt", ".git/x.txt", "a/.cache/y.jsonl", "a/__pycache__/x.pyc"):
        put(root / name, b"\xffno text")
    return root


def test_a_directory_is_read_in_order_at_any_depth(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(folder) == TEXTS
    assert read(f"{folder}/") == TEXTS
    assert [file.relative for file in find_files(corpus(folder))] == sorted(
        ["B.txt", "a/deep/er/z.jsonl.gz", "a/empty.txt", "a/x.parquet", "b.jsonl"]
    )
    listed = os.walk

    def otherwise(*asked: object, **options: object) -> object:
        for place, folders, names in listed(*asked, **options):
            folders.reverse()
            yield place, folders, random.Random(3).sample(names, len(names))

    monkeypatch.setattr(os, "walk", otherwise)
    assert read(folder) == TEXTS


def test_files_of_other_kinds_are_named_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("A.TXT", "b.json"):
        put(folder / name, b"x")
    for _ in range(2):
        assert len(find_files(corpus(folder))) == 5
    (line,) = caplog.messages
    assert "5 of 10 files are not read, since their names end with none of .txt, .jsonl, .parquet" in line
    assert line.endswith(": A.TXT, README.md, b.json, notes.pdf, x.pyc")


def test_links_to_files_are_read_and_those_to_anything_else_are_not_opened(folder: Path, tmp_path: Path) -> None:
    outside = put(tmp_path / "blobs" / "c0ffee", b"outside")
    os.mkfifo(tmp_path / "pipe")
    for name, target in {
        "zw.txt": outside,
        "around": folder,
        "zx.txt": "/dev/zero",
        "zy.txt": tmp_path / "pipe",
    }.items():
        (folder / name).symlink_to(target)
    assert read(folder) == [*TEXTS, "outside"]
    assert len(hash_files(corpus(folder))) == 64
    for name in ("zx.txt", "zy.txt"):
        assert "is not a .txt/.jsonl/.parquet file" in refusal(folder / name)
    outside.unlink()
    assert f"'{folder}/zw.txt' cannot be read (No such file or directory)" in refusal(folder)


def test_the_hash_of_a_directory_tells_names_and_contents_apart(folder: Path, tmp_path: Path) -> None:
    first = hash_files(corpus(folder))
    put(folder / "README.md", b"changed")
    put(folder / ".hidden.txt", b"changed")
    moved = folder.rename(tmp_path / "elsewhere")
    assert hash_files(corpus(moved)) == first
    (moved / "b.jsonl").rename(moved / "c.jsonl")
    renamed = hash_files(corpus(moved))
    put(moved / "c.jsonl", as_lines(TEXTS))
    assert len({first, renamed, hash_files(corpus(moved))}) == 3


def as_parquet(columns: dict[str, object]) -> bytes:
    pq.write_table(pa.table(columns), written := pa.BufferOutputStream())
    return written.getvalue().to_pybytes()


LATIN = [None, pa.array([0, 4], pa.int32()).buffers()[1], pa.py_buffer(b"caf\xe9")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", as_parquet({"body": ["a"], "n": [1]}), "no column 'text' in it; set column to one of: body, n"),
        ("n.parquet", as_parquet({"text": [1]}), "holds int in a row"),
        (
            "latin.parquet",
            as_parquet({"text": pa.Array.from_buffers(pa.string(), 1, LATIN)}),
            "text is not UTF-8; write",
        ),
        (
            "long.jsonl",
            as_lines(["a", "b" * 2000]),
            "has a line of more than 1000 characters: line 2; write one document",
        ),
        ("empty.txt", b"", "is empty"),
        ("latin.txt", b"\xc3\xa9\ncaf\xe9\n", "is not UTF-8 at byte 6; convert it with iconv -t UTF-8"),
        ("latin.jsonl.gz", gzip.compress(b'{"text": "caf\xe9"}\n'), "is not UTF-8"),
        ("wide.txt", "wide".encode("utf-16"), "is not UTF-8"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2, Expecting value"),
        (
            "half.jsonl",
            b'{"text": "a"}\n{"text": "\\ud83d\\ude00 b\\ud800"}\n',
            "has text that is not Unicode in line 2: half of a surrogate pair, \\ud800, at character 3; fix or remove",
        ),
        ("column.jsonl", b'{"body": "a", "id": 1}\n', "no column 'text' in line 1; set column to one of: body, id"),
        ("number.jsonl", b'{"text": 3, "body": "a"}\n', "holds int in line 1; set column to one that holds text"),
        ("broken.parquet", b"PAR1 nonsense", "is not a readable Parquet file"),
        ("cut.jsonl.bz2", bz2.compress(as_lines(TEXTS))[:-20], "cannot be read (Truncated compressed stream)"),
        ("table.csv.gz", b"a,b\n", "is not a .txt/.jsonl/.parquet file; convert it"),
    ],
)
def test_broken_files(name: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 1000)
    path = put(tmp_path / "one" / name, content)
    assert message in refusal(path)
    if "is not a .txt" not in message:
        put(tmp_path / "one" / "a.txt", b"well")
        inside = refusal(path.parent) if content else f"'{path}' {message}"
        assert f"'{path}'" in inside  # it says which file of the directory
        assert message in inside


def test_a_directory_without_text(tmp_path: Path) -> None:
    put(tmp_path / ".hidden.txt", b"hidden")
    put(tmp_path / "notes.pdf", b"no text")
    assert f"directory '{tmp_path}' has no .txt/.jsonl/.parquet file in it" in refusal(tmp_path)
    put(tmp_path / "empty.txt", b"")
    assert "is empty" in refusal(tmp_path)


def test_what_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refuse(place: str) -> object:
        if str(place).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    for ask in (read, lambda name: hash_files(corpus(name))):
        said = read_refusal(ask, folder)
        assert f"'{folder / 'a/deep'}' cannot be read (Permission denied); check its permissions" in said


def test_a_line_of_gigabytes_takes_bounded_memory(tmp_path: Path) -> None:
    """One line of 1 GiB in 1 MB of gzip: no more of it than the limit is read, twice while it is joined."""
    block = gzip.compress(b"a" * 2**26)
    path = put(tmp_path / "bomb.jsonl.gz", gzip.compress(b'{"text": "') + block * 16)
    said, peak = trace(lambda: refusal(path))
    assert f"has a line of more than {readers.LONGEST_LINE} characters: line 1" in said
    assert readers.LONGEST_LINE <= peak < 2 * readers.LONGEST_LINE + 2**24
