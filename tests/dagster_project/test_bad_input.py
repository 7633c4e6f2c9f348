"""What cannot be done is refused in one line with a remedy, and leaves nothing behind."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import BertConfig, BertForMaskedLM

from dagster_project.assets import metrics
from dagster_project.study.home import HOME_VARIABLE
from extract.hub import silence_libraries
from storage.zarr import sequences
from storage.zarr.sequences import SequenceStore
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, files

WELL = "{model: embedded, corpus: embedded, context_length: 8, sequences: 1}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in which nothing ever comes to be."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def bad(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model and a text that are refused only when they are read."""
    folder = tmp_path_factory.mktemp("bad")
    shutil.copytree(inputs / "llama", folder / "encoder")
    small = BertConfig(vocab_size=320, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    with silence_libraries():
        BertForMaskedLM(small).save_pretrained(folder / "encoder")
    (folder / "short.txt").write_text("A short text.\n")
    return folder


def refused(home: Path, inputs: Path, **changes: object) -> str:
    """What a run of a new study says that is refused; it leaves nothing behind."""
    complaint = attention_geometry("run", "--name", "refused", *settings(inputs, **changes), home=home).complaint
    assert files(home) == {}
    return complaint


def test_an_encoder(home: Path, inputs: Path, bad: Path) -> None:
    complaint = refused(home, inputs, model=bad / "encoder")
    assert "is not a causal language model: its tokens attend to later ones; choose a decoder such as gpt2" in complaint


def test_a_text_that_is_too_short(home: Path, inputs: Path, bad: Path) -> None:
    complaint = refused(home, inputs, corpus=bad / "short.txt")
    assert "too little text: 0 of 4 requested sequences of 48 tokens (documents: 1," in complaint
    assert f"'{bad}/short.txt'" in complaint


@pytest.mark.parametrize(
    "name", ["../escape", "a/b", "A b", "", ".", "..", "-", "a.", "x" * 65, "été", "a\nb", "a\x1b[2J"]
)
def test_names_that_are_no_safe_paths(home: Path, inputs: Path, name: str) -> None:
    complaint = attention_geometry("run", "--name", name, *settings(inputs), home=home).complaint
    assert "cannot be the name of a study; use up to 64 lower-case letters" in complaint
    assert complaint.isprintable()
    assert files(home) == {}
    assert not (home.parent / "escape").exists()


def test_a_study_that_was_not_run_has_no_report(home: Path) -> None:
    complaint = attention_geometry("report", "gpt2", home=home).complaint
    assert "run it first: attention-geometry run gpt2" in complaint
    assert files(home) == {}


# --- studies.yaml ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"studies:\n  one: {WELL[:-1]}, sequence: 4}}", "study 'one', field 'sequence' is unknown; did you mean 'seq"),
        (f"studies:\n  one: {WELL.replace('ngth', 'nght')}", "did you mean 'context_length'? (and 1 more)"),
        (f"studies:\n  one: {WELL[:-1]}, flavour: 4}}", "field 'flavour' is unknown; the fields are model, "),
        (f"studies:\n  one: {WELL[:-1]}, analysis: {{map_m: 4}}}}", "field 'analysis.map_m' is unknown; did you mean"),
        (f"studies:\n  one: {WELL.replace('8', 'eight')}", "study 'one', field 'context_length': input should be a va"),
        *(
            (f"studies:\n  one: {WELL[:-1]}, analysis: {{kappas: {kappas}}}}}", f"field 'analysis.kappas': {said}")
            for kappas, said in (
                ("[]", "input should be a list of 1 to 16 distinct positive finite numbers, found [] (list of"),
                ("[0.5, 0]", "input should be a list of 1 to 16 distinct positive finite numbers, found [0.5, 0] (li"),
                ("[1, 2, 1.0]", "input should be a list of 1 to 16 distinct"),
                ("[.inf]", "input should be a list of 1 to 16 distinct"),
                ("[.nan]", "input should be a list of 1 to 16 distinct"),
                (f"{list(range(1, 18))}", "input should be a list of 1 to 16 distinct"),
                ("0.5", "input should be a list of 1 to 16 distinct positive finite numbers, found 0.5 (list of the"),
                ("[true]", "input should be a list of 1 to 16 distinct"),
                ("['0.5']", "input should be a list of 1 to 16 distinct"),
                (f"[{10**400}]", "input should be a list of 1 to 16 distinct"),
            )
        ),
        *(
            (
                f"studies:\n  one: {WELL[:-1]}, analysis: {{monte_carlo: {{{grid}}}}}}}",
                f"field 'analysis.monte_carlo.{field}",
            )
            for grid, field in (
                ("n_keys: [64], n: [64]", "n': at least one N should be below 64, the smallest n_keys, found"),
                ("beta: [1, 1.0]", "beta': input should name every value once, found [1, 1.0] (β of the"),
                ("rho_0: [1]", "rho_0.0': input should be less than 1, found 1"),
                ("draws: 1", "draws': input should be greater than or equal to 2, found 1"),
                ("head_dims: [4]", "head_dims' is unknown; did you mean 'analysis.monte_carlo.head_dim'?"),
            )
        ),
        (
            f"studies:\n  one: {WELL.replace('corpus: embedded', 'corpus: synthetic')}",
            "field 'corpus': input is only allowed with `model: synthetic`",
        ),
        (
            f"studies:\n  one: {WELL[:-1]}, analysis: {{scale: printed}}}}",
            "field 'analysis.scale': input should be 'unit' or 'raw', found 'printed' (what upper bounds are",
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
        ("studies:\n  one:", "study 'one', settings: "),
        (f"studies:\n  A b: {WELL}", "'A b' cannot be the name of a study"),
        (f"studies:\n  1: {WELL}", "'1' cannot be the name of a study"),
        (f"studies:\n  embedded: {WELL}", "study 'embedded' is already shipped with the product"),
        ("studies: [one]", "must contain one mapping 'studies'"),
        ("study: {}", "must contain one mapping 'studies'"),
        ("", "must contain one mapping 'studies'"),
        ("studies:\n\tone: {", "is not valid YAML"),
        (f"studies:\n  one: {WELL}\n  one: {WELL}", "'one' is defined twice, first"),
        (f"studies: {{{'a: {' * 40}{'}' * 40}}}", "more than 32 levels"),
        (f"studies:\n  a: &a {WELL}\n" + "".join(f"  b{i}: *a\n" for i in range(1001)), "more than 1000 aliases"),
        (f"studies:\n  x.{'0' * 32}.partial: {WELL}", "cannot be the name of a study"),
        (b"studies: \xff", "is not valid YAML"),
        ("studies: !!python/object/apply:os.system ['touch ran']", "is not valid YAML"),
        (f"studies:\n  one: {WELL}\n  two: {{seed: 1{'0' * 5000}}}", "is not valid YAML: Exceeds the limit"),
        (f"studies:\n  two: {{seed: 0x1{'0' * 5000}}}", "is not valid YAML: Exceeds the limit"),
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


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_data_root_that_cannot_be_written(inputs: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    for command in (("run", "embedded"), ("run", "--name", "new", *settings(inputs))):
        complaint = attention_geometry(*command, home=tmp_path / place).complaint
        assert f"The data root {tmp_path}/{place} cannot be written" in complaint
        assert HOME_VARIABLE in complaint
    assert attention_geometry("doctor", home=tmp_path / place).code == 0
    assert (tmp_path / "file").read_text() == "in the way"


def failing(monkeypatch: pytest.MonkeyPatch, number: int, fails: Callable[[SequenceStore, int], bool]) -> None:
    """Let the writing of some sequences end in a system error."""
    write = SequenceStore.write

    def maybe(store: SequenceStore, sequence: int, arrays: dict[str, object]) -> None:
        if fails(store, sequence):
            raise OSError(number, os.strerror(number))
        write(store, sequence, arrays)

    monkeypatch.setattr(SequenceStore, "write", maybe)


def fill_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.long  # a run that the disk stops at every stage
def test_a_full_disk_keeps_what_is_whole_and_the_next_run_continues(
    mine: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("run", "--name", "mine", *settings(inputs))
    with monkeypatch.context() as patch:
        failing(patch, errno.ENOSPC, lambda _store, sequence: sequence == 2)
        complaint = attention_geometry(*options, home=tmp_path).complaint
    assert "The disk is full" in complaint
    assert "keeps 2 of 4 sequences; free space and run again" in complaint
    assert not (tmp_path / "metrics").exists()
    with monkeypatch.context() as patch:
        measure = metrics.measure_rows
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


@pytest.mark.slow
def test_a_disk_that_is_full_at_once_leaves_no_study(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sequences, "_create_documents", full)
    assert "The disk is full" in attention_geometry("run", "--name", "new", *settings(inputs), home=tmp_path).complaint
    assert [name for name in files(tmp_path) if name != "tensors"] == []


@pytest.mark.slow
def test_a_place_that_is_taken_by_something_else(copied: Path) -> None:
    shutil.rmtree(copied / "reports")
    (copied / "reports").write_text("in the way")
    complaint = attention_geometry("report", "mine", home=copied).complaint
    assert f"{copied}/reports" in complaint


@pytest.mark.parametrize("device", [False, True])
def test_a_studies_file_that_never_ends_is_refused(tmp_path: Path, *, device: bool) -> None:
    path = tmp_path / "studies.yaml"
    path.symlink_to("/dev/zero") if device else os.mkfifo(path)
    assert "not a regular file" in attention_geometry("run", "mine", home=tmp_path).complaint
