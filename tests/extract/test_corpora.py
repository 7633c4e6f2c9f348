"""Choosing windows from corpora: each once, by the seed alone, without reading further than needed."""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

from extract.embedded import list_topics
from extract.identity import hash_corpus
from extract.settings import Bos, CorpusSettings
from extract.texts import corpora, readers
from extract.texts.corpora import Windows, open_documents
from storage.errors import UserError
from tests.extract.tiny import BOS, EOS, text, tiny_tokenizer
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


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)), encoding="utf-8")
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
        source = corpus(write_jsonl(Path(folder) / "documents.jsonl", texts), pack=pack)
        if expected:
            chosen = windows(source, len(expected), context_length=keys, tokenizer=tokenizer, bos=bos)
            assert sorted(chosen.tokens.tolist()) == expected
            assert (chosen.documents_read, chosen.documents_skipped) == (len(texts), skipped)
        message = refusal(source, sequences=len(expected) + 1, context_length=keys, tokenizer=tokenizer, bos=bos)
    there = f"{len(expected)} of {len(expected) + 1} requested sequences of {keys} tokens (documents: {len(texts)}, "
    assert there in message


@pytest.mark.parametrize(("pack", "prepended"), [(False, True), (True, False)])
def test_a_document_of_any_length_is_tokenised_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pack: bool, prepended: bool
) -> None:
    """Their windows are those of the whole document, also if a space is put before every text that is tokenised."""
    source = corpus(write_jsonl(tmp_path / "a.jsonl", [text(300), "x" * 500, text(5)]), pack=pack)
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
    assert (in_pieces.documents_read, in_pieces.documents_skipped) == (whole.documents_read, whole.documents_skipped)


def test_too_little_text_says_how_much_there_was(tmp_path: Path) -> None:
    short = [text(1, seed) for seed in range(3)]
    path = write_jsonl(tmp_path / "little.jsonl", [*short, text(12)])
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
    assert (chosen.documents_read, chosen.documents_skipped, chosen.revision) == (0, 0, None)
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
    source = corpus(write_jsonl(tmp_path / "twice.jsonl", texts * 2))
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
