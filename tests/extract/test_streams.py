"""Hub datasets over a hub on loopback: what is downloaded, what a break does to the stream, and each mistake's line."""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.hf_file_system import HfFileSystemFile

from extract.hub import summarise_error
from extract.identity import hash_corpus
from extract.settings import CorpusSettings
from extract.texts import corpora, streams
from extract.texts.corpora import Windows, open_documents
from tests.extract.fake_hub import COMMIT, CUT, RESET, FakeHub, go_to, reach
from tests.extract.tiny import tiny_tokenizer
from tests.refusals import read_refusal

ROWS, GROUP, SHARDS = 120, 30, 3
REQUESTS = 6  # the hub's client asks that often before a fault comes through
TOKENIZER = tiny_tokenizer()


def words(seed: int) -> str:
    """One document, which says where it is from and does not compress."""
    return f"<{seed}> " + random.Random(seed).randbytes(300).hex()


def number(document: str) -> int:
    """Where a document is from."""
    return int(document[1 : document.index(">")])


EVERYTHING = {words(seed) for seed in range(SHARDS * ROWS)}


def web(root: Path) -> Path:
    """A dataset of three Parquet files with a column that nobody asked for."""
    (root / "data").mkdir(parents=True)
    for shard in range(SHARDS):
        texts = [words(shard * ROWS + row) for row in range(ROWS)]
        ballast = [random.Random(row).randbytes(4000).hex() for row in range(ROWS)]
        path = root / f"data/train-0000{shard}-of-0000{SHARDS}.parquet"
        pq.write_table(pa.table({"text": texts, "image": ballast}), path, row_group_size=GROUP, compression="none")
    return root


def lines(root: Path) -> Path:
    """A dataset of two JSON Lines files, which come as one piece each."""
    root.mkdir()
    for shard in range(2):
        rows = range(shard * ROWS // 2, (shard + 1) * ROWS // 2)
        (root / f"train-{shard}.jsonl").write_text("".join(json.dumps({"text": words(row)}) + "\n" for row in rows))
    return root


def script(root: Path) -> Path:
    """A dataset that only a program can read."""
    root.mkdir()
    (root / "script.py").write_text("raise SystemExit")
    return root


def subsets(root: Path) -> Path:
    """A dataset of two configurations."""
    root.mkdir()
    configurations = [{"config_name": name, "data_files": f"{name}.jsonl"} for name in ("plain", "long")]
    (root / "README.md").write_text(f"---\n{json.dumps({'configs': configurations})}\n---\n")
    for name in ("plain", "long"):
        (root / f"{name}.jsonl").write_text(json.dumps({"text": f"{name} text"}) + "\n")
    return root


def branch(root: Path) -> Path:
    """What the hub makes of a dataset of two subsets that comes as a script."""
    for name in ("plain", "long"):
        (root / name / "train").mkdir(parents=True)
        pq.write_table(
            pa.table({"text": [f"{name} {row}" for row in range(9)]}), root / name / "train" / "0000.parquet"
        )
    return root


MAKERS: tuple[Callable[[Path], Path], ...] = (web, lines, script, subsets, branch)


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hub")
    return {f"acme/{make.__name__}": make(root / make.__name__) for make in MAKERS} | {"acme/gated": root / "web"}


@pytest.fixture
def hub(repositories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(streams, "SHUFFLED_DOCUMENTS", 20)
    monkeypatch.setattr(streams, "PIECE", 2**12)
    with reach(repositories, tmp_path, monkeypatch) as served:
        yield served


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been slept."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def corpus(name: str = "acme/web", **others: object) -> CorpusSettings:
    return CorpusSettings(id=name, **others)


def read(source: CorpusSettings, seed: int = 0) -> list[str]:
    return list(open_documents(source, seed)[0])


def windows(source: CorpusSettings, sequences: int = 4, seed: int = 0) -> Windows:
    return corpora.select_windows(source, TOKENIZER, 16, sequences, seed)


def refusal(source: CorpusSettings) -> str:
    message = read_refusal(windows, source)
    assert f"'{source.id}'" in message
    return message


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["acme/web", "acme/lines"])
def test_every_document_comes_once_in_an_order_of_the_seed(name: str, hub: FakeHub) -> None:
    first, again, other = (read(corpus(name), seed) for seed in (1, 1, 2))
    assert len(first) == len(set(first))
    assert set(first) == (EVERYTHING if name == "acme/web" else {words(row) for row in range(ROWS)})
    assert first == again
    assert first != other
    assert first != sorted(first)
    chosen = windows(corpus(name, revision="v1"))
    assert (chosen.revision, hash_corpus(corpus(name))) == (COMMIT, None)
    assert chosen.sha256 == windows(corpus(name, revision="v1")).sha256
    assert f"GET /api/datasets/{name}/revision/v1" in hub.asked
    assert not [asked for asked in hub.asked if "/resolve/" in asked and COMMIT not in asked]


def test_nothing_is_downloaded_but_what_is_read(hub: FakeHub) -> None:
    texts, revision = open_documents(corpus(), 0)
    first = [next(texts) for _ in range(15)]  # with 20 in the buffer, 35 of the first shard: two groups
    assert revision == COMMIT
    shard = number(first[0]) // ROWS
    schema, chosen = "train-00000-of-00003.parquet", f"train-0000{shard}-of-00003.parquet"
    assert shard > 0
    assert set(hub.sent) == {schema, chosen}
    footer, group = 2**16, GROUP * len(words(0))
    assert hub.sent[schema] <= footer
    assert 2 * group < hub.sent[chosen] < footer + 2 * group + 4 * streams.PIECE


def test_no_thread_reads_ahead(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a thread aborts the interpreter where it still reads when the interpreter ends."""
    threads, fetch = set(), HfFileSystemFile.read

    def recorder(file: HfFileSystemFile, length: int = -1) -> bytes:
        threads.add(threading.get_ident())
        return fetch(file, length)

    monkeypatch.setattr(HfFileSystemFile, "read", recorder)
    assert len(read(corpus())) == len(EVERYTHING)
    assert len([asked for asked in hub.asked if asked.endswith(".parquet")]) > SHARDS
    assert threads == {threading.get_ident()}


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["acme/web", "acme/lines"])
def test_a_shard_opens_at_any_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ROWS", 7)  # so that rows are skipped in a group, in a batch, and over several
    shards, _ = streams._open_shards(corpus(name))
    for shard in shards:
        rows = [row["text"] for row in shard(0)]
        assert rows == sorted(rows, key=number)
        for first in (6, 7, 8, 30, 31, 45, len(rows)):
            assert [row["text"] for row in shard(first)] == rows[first:]


@pytest.mark.one_case
@pytest.mark.parametrize("fault", [CUT, RESET, 500, 503, 429])
@pytest.mark.parametrize("name", ["acme/web", "acme/lines"])
def test_a_stream_that_breaks_goes_on_where_it_was(
    name: str, fault: int | str, hub: FakeHub, waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    expected = read(corpus(name), 1)
    texts, _ = open_documents(corpus(name), 1)
    got = [next(texts) for _ in range(30)]
    again = [None] * 4 + [fault] * REQUESTS if name == "acme/web" else []  # what came begins the count anew
    hub.faults.extend([fault] * 2 * REQUESTS + again)
    got += texts
    assert not hub.faults
    assert got == expected
    said = [record.getMessage() for record in caplog.records if record.name == "extract.texts.streams"]
    assert all(line.startswith(f"The stream of the corpus '{name}' broke (") for line in said)
    waited = (2, 4, 2) if again else (2, 4)
    assert [line.rpartition(";")[2] for line in said] == [f" retrying in {wait} s" for wait in waited]
    assert {2.0, 4.0} <= set(waits)


def test_a_stream_that_stays_broken_is_given_up(hub: FakeHub, waits: list[float]) -> None:
    hub.faults.extend([None] * 2 + [503] * 1000)
    said = refusal(corpus())
    assert f"broke {streams.ATTEMPTS} times in a row (Server error '503 Service Unavailable' for url" in said
    assert "run again, the run continues after the finished sequences" in said
    assert 60 < sum(waits) < 600  # an outage of a minute is outlasted, nobody waits for ten


MISTAKES: dict[str, tuple[CorpusSettings, str]] = {
    "missing": (corpus("acme/missing"), "is neither a local file nor a dataset on the Hugging Face hub"),
    "private": (corpus("acme/private"), "log in with `hf auth login` or set HF_TOKEN"),
    "gated": (corpus("acme/gated"), "is gated: accept its terms at https://huggingface.co/datasets/acme/gated, then"),
    "revision": (corpus("acme/no-such-revision", revision="v9"), "has no revision 'v9'; give a branch, tag or commit"),
    "column": (corpus(column="body"), "has no column 'body' in it; set column to one of: text, image"),
    "split": (corpus(split="test"), "has no split 'test'; set split to one of: train"),
    "subset": (corpus("acme/subsets", subset="short"), "has no subset 'short'; set subset to one of: plain, long"),
    "no subset": (corpus("acme/subsets"), "set subset to one of: plain, long"),
    "script": (
        corpus("acme/script"),
        "is defined by a script, which is never run; set revision to refs/convert/parquet",
    ),
    "little": (corpus("acme/subsets", subset="plain"), "has too little text"),
}


@pytest.mark.one_case
@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_said_at_once(mistake: str, waits: list[float]) -> None:
    source, message = MISTAKES[mistake]
    assert message in refusal(source)
    assert not waits  # what does not heal is not tried again


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("name", ["acme/web", "acme/private"])
def test_the_token_is_sent_and_never_told(
    name: str, hub: FakeHub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "hf_" + "secret" * 6
    monkeypatch.setenv("HF_TOKEN", token)
    caplog.set_level(logging.DEBUG)
    hub.faults.extend([None] * 2 + [503] * REQUESTS)
    said = repr(windows(corpus())) if name == "acme/web" else refusal(corpus(name))
    assert hub.tokens == {f"Bearer {token}"}
    assert token not in said + caplog.text


def offline_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    go_to("http://127.0.0.1:9", monkeypatch)


@pytest.mark.parametrize("cut_off", [offline_hub, unreachable])
def test_without_the_hub_the_local_cache_is_read(
    cut_off: Callable[[pytest.MonkeyPatch], None], hub: FakeHub, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    datasets.load_dataset("acme/lines", revision=COMMIT)
    cut_off(monkeypatch)
    hub.asked.clear()
    assert set(read(corpus("acme/lines"))) == {words(row) for row in range(ROWS)}
    assert windows(corpus("acme/lines", revision="main")).revision == COMMIT
    other = "d" * 40
    assert f"only its commit {COMMIT}" in refusal(corpus("acme/lines", revision=other))
    assert "has no split 'test'; set split to one of: train" in refusal(corpus("acme/lines", split="test"))
    assert "the Hugging Face hub cannot be reached; check the network and HF_HUB_OFFLINE" in refusal(corpus())
    assert not hub.asked
    assert not waits


def test_the_parquet_branch_stands_in_for_a_script(hub: FakeHub) -> None:
    for subset in ("plain", "long"):
        texts = read(corpus("acme/branch", revision=streams.PARQUET_BRANCH, subset=subset))
        assert set(texts) == {f"{subset} {row}" for row in range(9)}
    assert "GET /api/datasets/acme/branch/revision/refs/convert/parquet" in hub.asked
    assert "cannot be read" in refusal(corpus("acme/branch", revision=streams.PARQUET_BRANCH, subset="short"))


def test_signatures_in_addresses_are_not_told() -> None:
    said = summarise_error(
        OSError("Server error '403' for url 'https://cdn.hub/a/b?X-Signature=s3cret&Key=K'. Is it?\nMore")
    )
    assert said == "Server error '403' for url 'https://cdn.hub/a/b'. Is it?"
