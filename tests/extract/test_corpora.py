"""Corpora: windows, each once, by the seed alone, and the files that they are chosen from, in every form."""

import bz2
import errno
import gzip
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

from extract.embedded import list_topics
from extract.identity import hash_corpus
from extract.settings import Bos, CorpusSettings
from extract.text_files import find_files, hash_files
from extract.texts import corpora, readers
from extract.texts.corpora import Windows, open_documents
from extract.texts.readers import read_documents
from storage.errors import UserError
from tests.extract.tiny import BOS, EOS, text, tiny_tokenizer
from tests.memory import trace
from tests.refusals import read_refusal

KEYS = 16
WITH_BOS, BARE, FRAMED = tiny_tokenizer(), tiny_tokenizer(bos=False, eos=False), tiny_tokenizer()
FRAMED.backend_tokenizer.post_processor = processors.TemplateProcessing(
    single=f"{BOS} {EOS} $A {EOS}", special_tokens=[(BOS, 0), (EOS, 1)]
)
TOKENIZERS: dict[str, tuple[Any, list[int], list[int]]] = {
    "BOS": (WITH_BOS, [0], [1]),
    "bare": (BARE, [], []),
    "two tokens before a text and one after it": (FRAMED, [0, 1], [1]),
}
"""Tokenizers with what sequences begin with, and what packed documents are separated by."""


def corpus(name: object, **others: object) -> CorpusSettings:
    return CorpusSettings(id=str(name), **others)


def windows(source: CorpusSettings, sequences: int = 4, **others: Any) -> Windows:
    given = {"tokenizer": WITH_BOS, "context_length": KEYS, "seed": 0} | others
    return corpora.select_windows(source, sequences=sequences, **given)


def refusal(source: CorpusSettings, **others: Any) -> str:
    message = read_refusal(windows, source, **others)
    assert source.id in message
    return message


def as_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)).encode()


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(text(3000), encoding="utf-8")
    return tmp_path / "book.txt"


def test_a_text_is_read_again_only_if_it_or_what_is_chosen_has_changed(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = readers.read_documents
    monkeypatch.setattr(readers, "read_documents", lambda corpus: opened.append(corpus.id) or read(corpus))
    first = windows(corpus(book))
    assert windows(corpus(book)) is first
    assert len(opened) == 1
    others = {"seed": 1, "context_length": KEYS + 1, "sequences": 5, "tokenizer": BARE}
    for number, (name, other) in enumerate(others.items(), start=2):
        assert not np.array_equal(windows(corpus(book), **{name: other}).tokens, first.tokens)
        assert len(opened) == number
    book.write_text(text(3000)[::-1], encoding="utf-8")
    second = windows(corpus(book))
    assert second.sha256 == hashlib.sha256(book.read_bytes()).hexdigest() != first.sha256
    assert not np.array_equal(second.tokens, first.tokens)


DOCUMENTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=60), min_size=1, max_size=12
)


@settings(max_examples=10)
@given(
    texts=DOCUMENTS, keys=st.integers(3, 9), pack=st.booleans(), kind=st.sampled_from([*TOKENIZERS]), bare=st.booleans()
)
def test_all_windows_of_any_documents(texts: list[str], keys: int, pack: bool, kind: str, bare: bool) -> None:
    """Asked for every window there is, the choice holds each exactly once; asked for one more, it says so."""
    tokenizer, start, end = TOKENIZERS[kind]
    bos: Bos = "never" if bare else "auto"
    start = [] if bare else start
    size = keys - len(start)
    encoded = [tokenizer(document, add_special_tokens=False)["input_ids"] for document in texts]
    streams = [[token for ids in encoded for token in ids + end]] if pack else encoded
    expected = sorted(start + ids[i : i + size] for ids in streams for i in range(0, len(ids) - size + 1, size))
    skipped = 0 if pack else sum(len(ids) < size for ids in encoded)
    with tempfile.TemporaryDirectory() as folder:
        source = corpus(put(Path(folder) / "documents.jsonl", as_lines(texts)), pack=pack)
        if expected:
            chosen = windows(source, len(expected), context_length=keys, tokenizer=tokenizer, bos=bos)
            assert sorted(chosen.tokens.tolist()) == expected
            assert (chosen.counts.documents_read, chosen.counts.documents_skipped) == (len(texts), skipped)
        message = refusal(source, sequences=len(expected) + 1, context_length=keys, tokenizer=tokenizer, bos=bos)
    there = f"{len(expected)} of {len(expected) + 1} requested sequences of {keys} tokens (documents: {len(texts)}, "
    assert there in message


@pytest.mark.parametrize(("pack", "prepended"), [(False, True), (True, False)])
def test_a_document_of_any_length_is_tokenised_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pack: bool, prepended: bool
) -> None:
    """Their windows are those of the whole document, also if a space is put before every text that is tokenised."""
    source = corpus(put(tmp_path / "a.jsonl", as_lines([text(300), "x" * 500, text(5)])), pack=pack)
    tokenizer = tiny_tokenizer()
    if prepended:
        tokenizer.backend_tokenizer.normalizer = normalizers.Prepend(" ")
    whole, lengths, encode = windows(source, sequences=20, tokenizer=tokenizer), [], corpora.encode_text

    def measure(tokenizer: Any, given: str) -> list[int]:
        lengths.append(len(given))
        return encode(tokenizer, given)

    monkeypatch.setattr(corpora, "encode_text", measure)
    monkeypatch.setattr(corpora, "PIECE", 200)
    corpora._select_windows_once.cache_clear()
    in_pieces = windows(source, sequences=20, tokenizer=tokenizer)
    np.testing.assert_array_equal(in_pieces.tokens, whole.tokens)
    assert 200 <= max(lengths) <= 200 + corpora.CONTEXT
    assert in_pieces.counts == whole.counts


def test_too_little_text_says_how_much_there_was(tmp_path: Path) -> None:
    short = [text(1, seed) for seed in range(3)]
    path = put(tmp_path / "little.jsonl", as_lines([*short, text(12)]))
    ids = [WITH_BOS(document, add_special_tokens=False)["input_ids"] for document in [*short, text(12)]]
    there, tokens = len(ids[-1]) // (KEYS - 1), sum(map(len, ids))
    said = refusal(corpus(path), sequences=99)
    assert f"{there} of 99 requested sequences of {KEYS} tokens (documents: 4, tokens: {tokens});" in said
    assert "set pack to join documents that are too short, of which there are 3" in said
    assert "set pack" not in refusal(corpus(path, pack=True), sequences=99)
    said = read_refusal(windows, corpus(path), context_length=2, tokenizer=FRAMED)
    assert "Every sequence begins with <s> </s>, which leaves no room for text in 2 tokens" in said


@pytest.mark.parametrize("name", ["embedded", "prose"])
def test_the_texts_that_are_shipped(name: str) -> None:
    """Held-out topics of the manual, and prose that is not in the manual, each work with its source."""
    texts = list(open_documents(corpus(name), 0)[0])
    held_out = [page for _, page in list_topics("held_out")]
    assert (texts == held_out) is (name == "embedded")
    chosen = windows(corpus(name), sequences=16, context_length=64)
    assert any(WITH_BOS.decode(chosen.tokens[0, 1:]) in each for each in texts)
    assert chosen.sha256 == hash_corpus(corpus(name))
    if name == "prose":
        assert sum(map(len, texts)) > 32 * 1024 * 6  # 24 sequences of 1,024 tokens and 8 held out, six characters each
        manual = "\n".join([*held_out, *(page for _, page in list_topics("train"))])
        assert not any(line in manual for each in texts for line in each.splitlines() if len(line) > 60)


# --- random tokens, twice ---


@pytest.mark.parametrize(("keys", "kind"), [(2, "BOS"), (17, "BOS"), *((16, kind) for kind in TOKENIZERS)])
def test_repeated_tokens_are_ordinary_ones_twice(keys: int, kind: str) -> None:
    tokenizer, start, _ = TOKENIZERS[kind]
    chosen = windows(corpus("repeated"), sequences=50, context_length=keys, tokenizer=tokenizer)
    assert chosen.tokens.shape == (50, keys)
    assert (chosen.tokens[:, : len(start)] == start).all()
    body = chosen.tokens[:, len(start) :]
    half = -(-body.shape[1] // 2)
    assert (body[:, half:] == body[:, : body.shape[1] - half]).all()
    assert not set(body.ravel().tolist()) & set(tokenizer.all_special_ids)
    assert (chosen.counts.documents_read, chosen.counts.documents_skipped, chosen.revision) == (0, 0, None)
    assert chosen.sha256 == hashlib.sha256(chosen.tokens.astype("<i4").tobytes()).hexdigest()
    assert hash_corpus(corpus("repeated")) is None


# --- held out ---


def test_held_out_windows_are_those_after_the_study_s(book: Path) -> None:
    longer, used = windows(corpus(book), sequences=12).tokens, windows(corpus(book), sequences=7).tokens
    np.testing.assert_array_equal(corpora.select_held_out(corpus(book), WITH_BOS, used, 0, 5), longer[7:])
    assert corpora.select_held_out(corpus(book), WITH_BOS, used, 0, 0).shape == (0, KEYS)
    used, longer = (windows(corpus("repeated"), count).tokens for count in (3, 8))
    np.testing.assert_array_equal(corpora.select_held_out(corpus("repeated"), WITH_BOS, used, 0, 5), longer[3:])


def test_text_that_the_study_has_read_is_not_held_out(tmp_path: Path) -> None:
    texts = [text(40, seed=seed) for seed in range(4)]
    source = corpus(put(tmp_path / "twice.jsonl", as_lines(texts * 2)))
    used = windows(source, sequences=6).tokens
    everything = windows(source, sequences=len(used) + 30).tokens
    found = corpora.select_held_out(source, WITH_BOS, used, 0, 20)
    known = {row.tobytes() for row in used}
    assert any(row.tobytes() in known for row in everything[6:26])  # it would have been
    assert not any(row.tobytes() in known for row in found)


@pytest.mark.parametrize("change", ["text", "tokenizer"])
def test_another_text_than_the_study_s_is_noticed(change: str, book: Path) -> None:
    used = windows(corpus(book), sequences=3).tokens
    if change == "text":
        book.write_text(text(3000, seed=1), encoding="utf-8")
    tokenizer = BARE if change == "tokenizer" else WITH_BOS
    with pytest.raises(UserError, match="has changed since the study was extracted; extract it again with --fresh"):
        corpora.select_held_out(corpus(book), tokenizer, used, 0, 2)


# --- local files and directories: the same documents in every form ---

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def read(name: object, **others: object) -> list[str]:
    return list(read_documents(corpus(name, **others)))


def refuse_file(name: object, **others: object) -> str:
    """The line that reading refuses with."""
    message = read_refusal(read, name, **others)
    assert str(name) in message
    return message


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
    links = {"zw.txt": outside, "around": folder, "zx.txt": "/dev/zero", "zy.txt": tmp_path / "pipe"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    assert read(folder) == [*TEXTS, "outside"]
    assert len(hash_files(corpus(folder))) == 64
    for name in ("zx.txt", "zy.txt"):
        assert "is not a .txt/.jsonl/.parquet file" in refuse_file(folder / name)
    outside.unlink()
    assert f"'{folder}/zw.txt' cannot be read (No such file or directory)" in refuse_file(folder)


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
    assert message in refuse_file(path)
    if "is not a .txt" not in message:
        put(tmp_path / "one" / "a.txt", b"well")
        inside = refuse_file(path.parent) if content else f"'{path}' {message}"
        assert f"'{path}'" in inside  # it says which file of the directory
        assert message in inside


def test_a_directory_without_text(tmp_path: Path) -> None:
    put(tmp_path / ".hidden.txt", b"hidden")
    put(tmp_path / "notes.pdf", b"no text")
    assert f"directory '{tmp_path}' has no .txt/.jsonl/.parquet file in it" in refuse_file(tmp_path)
    put(tmp_path / "empty.txt", b"")
    assert "is empty" in refuse_file(tmp_path)


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
    said, peak = trace(lambda: refuse_file(path))
    assert f"has a line of more than {readers.LONGEST_LINE} characters: line 1" in said
    assert readers.LONGEST_LINE <= peak < 2 * readers.LONGEST_LINE + 2**24
