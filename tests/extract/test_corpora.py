"""Reading corpora and cutting them into windows: what works, and the one line for each mistake."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extract import corpora
from extract.corpora import Windows, documents, identity
from extract.embedded.manual import topics
from extract.settings import CorpusSettings
from storage.errors import UserError
from tests.extract.tiny import text, tiny_tokenizer

KEYS = 16
WITH_BOS, BARE = tiny_tokenizer(), tiny_tokenizer(bos=False, eos=False)


def corpus(name: object, **others: object) -> CorpusSettings:
    return CorpusSettings(id=str(name), **others)


def windows(
    source: CorpusSettings, sequences: int = 4, seed: int = 0, keys: int = KEYS, tokenizer: Any = WITH_BOS
) -> Windows:
    return corpora.windows(source, tokenizer, keys, sequences, seed)


def refusal(source: CorpusSettings, **others: Any) -> str:
    with pytest.raises(UserError) as caught:
        windows(source, **others)
    message = str(caught.value)
    assert "\n" not in message
    assert source.id in message
    return message


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)), encoding="utf-8")
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(text(3000), encoding="utf-8")
    return tmp_path / "book.txt"


def test_windows_are_equal_long_start_with_bos_and_are_text_of_the_corpus(book: Path) -> None:
    chosen = windows(corpus(book), sequences=20)
    assert chosen.tokens.shape == (20, KEYS)
    assert chosen.tokens.dtype == np.int32
    assert (chosen.tokens[:, 0] == WITH_BOS.bos_token_id).all()
    whole = text(3000)
    assert all(WITH_BOS.decode(row[1:]) in whole for row in chosen.tokens)
    assert len(np.unique(chosen.tokens, axis=0)) == 20
    assert (chosen.documents_read, chosen.documents_skipped) == (1, 0)


def test_without_bos_every_token_is_text(book: Path) -> None:
    chosen = windows(corpus(book), tokenizer=BARE)
    assert all(BARE.decode(row) in text(3000) for row in chosen.tokens)


def test_the_seed_alone_decides(book: Path) -> None:
    first, again, other = (windows(corpus(book), seed=seed).tokens for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_a_choice_larger_than_the_buffer_reads_on_and_repeats(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SHUFFLED", 8)
    first, again = (windows(corpus(book), sequences=30, seed=3).tokens for _ in range(2))
    assert (first == again).all()
    assert len(np.unique(first, axis=0)) == 30


def test_a_large_corpus_is_read_only_as_far_as_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SHUFFLED", 8)
    path = write_jsonl(tmp_path / "many.jsonl", [text(30, seed) for seed in range(500)])
    assert windows(corpus(path), sequences=4).documents_read < 20


DOCUMENTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=60), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None)
@given(texts=DOCUMENTS, keys=st.integers(2, 9), pack=st.booleans(), with_bos=st.booleans())
def test_all_windows_of_any_documents(texts: list[str], keys: int, pack: bool, with_bos: bool) -> None:
    """Asked for every window there is, the choice holds each exactly once; asked for one more, it says so."""
    tokenizer = WITH_BOS if with_bos else BARE
    start, end = ([0], [1]) if with_bos else ([], [])
    size = keys - len(start)
    encoded = [tokenizer(document, add_special_tokens=False)["input_ids"] for document in texts]
    streams = [[token for ids in encoded for token in ids + end]] if pack else encoded
    expected = sorted(start + ids[i : i + size] for ids in streams for i in range(0, len(ids) - size + 1, size))
    skipped = 0 if pack else sum(len(ids) < size for ids in encoded)
    with tempfile.TemporaryDirectory() as folder:
        source = corpus(write_jsonl(Path(folder) / "documents.jsonl", texts), pack=pack)
        if expected:
            chosen = windows(source, len(expected), keys=keys, tokenizer=tokenizer)
            assert sorted(chosen.tokens.tolist()) == expected
            assert (chosen.documents_read, chosen.documents_skipped) == (len(texts), skipped)
        message = refusal(source, sequences=len(expected) + 1, keys=keys, tokenizer=tokenizer)
    assert f"{len(texts)} documents, {len(expected) + 1} are asked for" in message


def test_short_documents_are_skipped_and_counted_unless_packed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "short.jsonl", [text(1, seed) for seed in range(40)] + [text(400)])
    chosen = windows(corpus(path), sequences=3)
    assert (chosen.documents_read, chosen.documents_skipped) == (41, 40)
    packed = windows(corpus(path, pack=True), sequences=3)
    assert packed.documents_skipped == 0
    everything = windows(corpus(path, pack=True), sequences=20).tokens
    assert (everything == WITH_BOS.eos_token_id).any()
    assert (everything[:, 0] == WITH_BOS.bos_token_id).all()


def test_too_little_text_says_how_much_there_was(tmp_path: Path) -> None:
    short = [text(1, seed) for seed in range(3)]
    path = write_jsonl(tmp_path / "little.jsonl", [*short, text(12)])
    ids = [WITH_BOS(document, add_special_tokens=False)["input_ids"] for document in [*short, text(12)]]
    there, tokens = len(ids[-1]) // (KEYS - 1), sum(map(len, ids))
    said = refusal(corpus(path), sequences=99)
    assert f"{there} sequences of {KEYS} tokens from {tokens} tokens in 4 documents, 99 are asked for" in said
    assert "set pack to join the 3 documents that are too short" in said
    assert "set pack" not in refusal(corpus(path, pack=True), sequences=99)


def test_every_kind_of_file_gives_the_same_documents(tmp_path: Path) -> None:
    texts = [text(40, seed) + "é€𝄞" for seed in range(5)]
    write_jsonl(tmp_path / "a.jsonl", texts)
    pq.write_table(pa.table({"body": texts, "other": range(5)}), tmp_path / "a.parquet", row_group_size=2)
    assert list(documents(corpus(tmp_path / "a.jsonl"), 0)) == texts
    assert list(documents(corpus(tmp_path / "a.parquet", column="body"), 0)) == texts


def test_a_text_file_is_cut_at_line_ends_into_bounded_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "BLOCK", 100)
    content = text(500) + "é" * 1000 + "\nlast"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    blocks = list(documents(corpus(tmp_path / "a.txt"), 0))
    assert "".join(blocks) == content
    assert max(map(len, blocks)) <= 200
    assert all(block.endswith("\n") for block in blocks if "é" not in block and block != blocks[-1])


def test_the_embedded_corpus_is_the_held_out_manual() -> None:
    held_out = [held for _, held in topics("held_out")]
    assert list(documents(corpus("embedded"), 0)) == held_out
    chosen = windows(corpus("embedded"), sequences=16, keys=64)
    assert any(WITH_BOS.decode(chosen.tokens[0, 1:]) in held for held in held_out)


def test_the_hash_is_the_files(book: Path) -> None:
    assert windows(corpus(book)).sha256 == identity(corpus(book)) == hashlib.sha256(book.read_bytes()).hexdigest()
    assert windows(corpus("embedded")).sha256 == identity(corpus("embedded"))


def test_nulls_read_as_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": null}\n\n{"text": "b"}\n')
    assert list(documents(corpus(tmp_path / "a.jsonl"), 0)) == ["", "b"]


def file(path: Path, content: bytes) -> CorpusSettings:
    path.write_bytes(content)
    return corpus(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("latin.txt", b"caf\xe9\n", "not UTF-8 at byte 3; convert it with iconv"),
        ("latin.jsonl", b'{"text": "caf\xe9"}\n', "not UTF-8 at byte 13"),
        ("cut.txt", "aé".encode()[:-1], "not UTF-8 at byte 1"),
        ("wide.txt", "wide".encode("utf-16"), "not UTF-8 at byte 0"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2, Expecting value"),
        ("list.jsonl", b'{"text": "a"}\n[1]\n', "no JSON object: line 2"),
        ("column.jsonl", b'{"body": "a", "id": 1}\n', "no column 'text' in line 1; set column to one of: body, id"),
        ("number.jsonl", b'{"text": 3, "body": "a"}\n', "holds int in line 1; set column to one that holds text"),
        ("broken.parquet", b"PAR1 nonsense", "is no readable Parquet file"),
        ("table.csv", b"a,b\n", "is no .txt/.jsonl/.parquet file; convert it"),
    ],
)
def test_broken_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    assert message in refusal(file(tmp_path / name, content))


def test_a_wrong_byte_is_found_behind_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "BLOCK", 16)
    content = ("é" * 101).encode() + b"\xff"
    assert f"not UTF-8 at byte {len(content) - 1}" in refusal(file(tmp_path / "a.txt", content))


@pytest.mark.parametrize("name", ["/no/such.txt", "no-such.txt", "no-such.jsonl", "./no-such", "~/no such", "a/b/c"])
def test_missing_files(name: str) -> None:
    assert f"There is no corpus file '{name}'" in refusal(corpus(name))


def test_a_directory_is_no_corpus(tmp_path: Path) -> None:
    assert "is no .txt/.jsonl/.parquet file" in refusal(corpus(tmp_path))


def test_a_lacking_parquet_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["a"], "n": [1]}), tmp_path / "a.parquet")
    assert "no column 'text' in it; set column to one of: body, n" in refusal(corpus(tmp_path / "a.parquet"))
    assert "holds int in a row" in refusal(corpus(tmp_path / "a.parquet", column="n"))


class FakeHub:
    """Stands in for ``datasets.load_dataset``: streams documents and counts how many were taken."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked, self.taken = error, (), 0

    def records(self) -> Iterator[dict[str, object]]:
        for seed in range(3000):
            self.taken += 1
            yield {"text": text(60, seed), "meta": seed}

    def load_dataset(self, *asked: object, **options: object) -> datasets.IterableDataset:
        if self.error:
            raise self.error
        self.asked = (*asked, options)
        return datasets.IterableDataset.from_generator(self.records)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setattr(datasets, "load_dataset", fake.load_dataset)
    monkeypatch.setattr(corpora, "SHUFFLED", 8)
    monkeypatch.setattr(corpora, "SHUFFLED_DOCUMENTS", 20)
    return fake


def test_a_hub_dataset_is_streamed_and_shuffled_by_the_seed(hub: FakeHub) -> None:
    source = corpus("acme/web", revision="v1", subset="plain", split="validation")
    first = windows(source, seed=1)
    assert hub.asked == ("acme/web", "plain", {"revision": "v1", "split": "validation", "streaming": True})
    assert hub.taken < 100
    assert identity(source) is None
    assert first.sha256 == hashlib.sha256(first.tokens.astype("<i4").tobytes()).hexdigest()
    again, other = windows(source, seed=1), windows(source, seed=2)
    assert (again.tokens == first.tokens).all()
    assert other.sha256 != first.sha256


def test_a_lacking_column_of_a_hub_dataset(hub: FakeHub) -> None:
    assert "no column 'body' in a row; set column to one of: text, meta" in refusal(corpus("acme/web", column="body"))
    assert hub.taken < 100


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (datasets.exceptions.DatasetNotFoundError("no"), "neither a local file nor a dataset on the Hugging Face hub"),
        (ConnectionError("down"), "the Hugging Face hub cannot be reached; check the network and HF_HUB_OFFLINE"),
        (ValueError('Unknown split "x".\nMore'), 'cannot be read from the Hugging Face hub: Unknown split "x"'),
    ],
)
def test_hub_datasets_that_cannot_be_read(error: Exception, message: str, hub: FakeHub) -> None:
    hub.error = error
    assert message in refusal(corpus("acme/web"))


def test_the_real_client_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "the Hugging Face hub cannot be reached" in refusal(corpus("acme/never-downloaded"))
