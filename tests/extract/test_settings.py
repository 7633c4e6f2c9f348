"""What may be asked for, what is said of the rest before anything heavy is imported, and how it is shown."""

import logging
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from dagster_project.study.settings import Study
from dagster_project.study.studies import parse_study
from extract.extraction import extract
from extract.models import checks
from extract.models.checks import check_inputs
from extract.settings import ExtractionSettings, Shard
from storage.errors import UserError, escape_unprintable
from storage.files.places import LocalPlace
from tests.extract.tiny import text, tiny_tokenizer, write_checkpoint
from tests.refusals import read_refusal

GIVEN = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 1}
DRAWN = {"model": "synthetic", "corpus": None}
NO_POSITIONS = "input should be a position or a list of positions, whole numbers from 1, found "
ONLY_HUB = "input is only allowed with a hub id"


def parse(**given: object) -> Study:
    return parse_study("one", GIVEN | given, "studies.yaml")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"queries": None, "batch_size": "auto", "device_map": None, "values": "float32", "sink_measure": False}),
        ({"queries": 7}, {"queries": (7,)}),
        ({"queries": [63, 1, 7]}, {"queries": (1, 7, 63)}),
        ({"model": {"id": "embedded", "weights": "random"}, "seed": 7}, {"weights_seed": 7}),
        ({"model": {"id": "embedded", "weights": "random", "weights_seed": 0}, "seed": 7}, {"weights_seed": 0}),
        ({"model": {"id": "acme/tiny", "revision": "v2"}}, {}),
        (
            {"batch_size": 3, "device_map": "balanced", "device": "cuda", "values": "float16", "probe": "repeated"},
            {"batch_size": 3, "device_map": "balanced", "values": "float16", "probe": "repeated"},
        ),
    ],
)
def test_what_may_be_asked_for_is_stored_and_read_again(given: dict[str, object], expected: dict[str, object]) -> None:
    study = parse(**given)
    extraction = study.select_extraction()
    assert {name: getattr(extraction, name) for name in expected} == expected
    assert study.query_positions == extraction.query_positions == (study.queries or (63,))
    for form in ("json", "python"):
        assert parse_study("one", study.model_dump(mode=form), "studies.yaml") == study


def test_settings_of_before_are_stored_as_they_were() -> None:
    stored = parse().model_dump(mode="json")
    assert stored["model"] == {"id": "embedded", "revision": "main"}
    assert not {"bos", "sink_measure", "every_query", "probe"} & stored.keys()
    assert parse().select_extraction().weights_seed is None


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"queries": [*range(1, 66)]}, "queries", "input should name 1 to 64 positions, not 65, found [1, 2, "),
        ({"queries": [7, 9, 7]}, "queries", "input should name every position only once, found [7, 9, 7]"),
        ({"queries": [0, 7]}, "queries", "positions should be 1 or more: the query at 0 has only one key, found"),
        ({"queries": [7, 64]}, "queries", "positions should be below context_length, which is 64, found [7, 64]"),
        *(({"queries": found}, "queries", f"{NO_POSITIONS}{found!r}") for found in ([7, "9"], "last")),
        ({"model": {"id": "embedded", "weights_seed": 1}}, "model.weights_seed", "input is only allowed with `wei"),
        ({"model": {"id": "synthetic", "weights": "random"}}, "model.weights", "a synthetic study has no model and"),
        ({"batch_size": "all"}, "batch_size", "input should be auto or a whole number from 1, found 'all'"),
        ({"dtype": "int8"}, "dtype", "input should be 'float32', 'bfloat16' or 'float16', found 'int8'"),
        ({"device_map": "auto", "device": "cpu"}, "device_map", "input is only allowed with `device: auto` or `dev"),
        ({"device_map": "auto", **DRAWN}, "device_map", "a synthetic study is drawn in float32 on the CPU"),
        ({"every_query": True, **DRAWN}, "every_query", "a synthetic study has only the weights of the chosen"),
        ({"probe": "repeated", **DRAWN}, "probe", "a synthetic study has no model that could read it"),
        ({"model": "synthetic"}, "corpus", "a synthetic study reads no text; leave it out, found 'embedded'"),
        ({"synthetic": {}}, "synthetic", "input is only allowed with `model: synthetic`"),
        ({"synthetic": {"t_1": [0.1, 0.7]}, **DRAWN}, "synthetic.t_2", "input should not begin below t_1, whose"),
        (
            {"context_length": 256, "queries": [20, 200], "synthetic": {"eta_growth": [0.1, 0.9]}, **DRAWN},
            "synthetic",
            "weights should grow by e^60 at most from t_2 to the last query, not by e^72",
        ),
        *(({"device": name}, "device", "string should match pattern") for name in ("gpu", "cuda:-1", "cuda:1\n")),
        *(
            ({"model": {"id": name, "gguf": "a.gguf"}}, "model.gguf", "input is only allowed with a directory or a")
            for name in ("embedded", "synthetic", "tiny.gguf", "package:acme/tiny.gguf")
        ),
        *(
            ({"model": {"id": "acme/tiny", "gguf": name}}, "model.gguf", "input should be the name of a .gguf file")
            for name in ("../a.gguf", "a/../../b.gguf", "a.bin", "a\\b.gguf")
        ),
        *(
            (
                {"model": {"id": name, "revision": "v2"}},
                "model.revision",
                ONLY_HUB + f", but the model '{name}' is local",
            )
            for name in ("embedded", "./somewhere", "no-such/a.gguf", "package:acme/a.gguf")
        ),
    ],
)
def test_settings_with_an_error(given: dict[str, object], field: str, said: str) -> None:
    message = read_refusal(parse, **given)
    assert message.startswith(f"studies.yaml: study 'one', field '{field}': {said}")
    assert "more)" not in message or "synthetic" in message


def test_queries_without_a_length_do_not_hide_that_it_is_missing() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "context_length"}
    with pytest.raises(UserError, match=r"field 'context_length' is missing; add it \(tokens in each sequence\)$"):
        parse_study("one", given | {"queries": [7]}, "studies.yaml")


@pytest.mark.parametrize(
    ("model", "is_file", "name"),
    [
        ("./tiny.gguf", True, "./tiny.gguf"),
        ("package:acme==1.2/a/b.gguf", True, "package:acme==1.2/a/b.gguf"),
        ({"id": "acme/tiny", "gguf": "q/tiny.Q4_1.gguf"}, False, "acme/tiny/q/tiny.Q4_1.gguf"),
        ({"id": "./folder", "gguf": "tiny.gguf"}, False, "./folder/tiny.gguf"),
        ("acme/tiny", False, "acme/tiny"),
    ],
)
def test_a_gguf_file_is_named_in_four_ways(model: object, is_file: bool, name: str) -> None:
    study = parse(model=model)
    assert (study.model.is_file, study.model.name) == (is_file, name)
    assert parse_study("one", study.model_dump(mode="json"), "studies.yaml") == study


# --- shards ---


def test_shards_are_consecutive_and_cover_every_sequence_once() -> None:
    for total, count in product((1, 2, 9, 100), (1, 2, 7, 12)):
        parts = [Shard.parse(f"{index}/{count}").select_sequences(total) for index in range(1, count + 1)]
        assert [index for part in parts for index in part] == list(range(total))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def settings(**others: object) -> ExtractionSettings:
    return ExtractionSettings.model_validate(GIVEN | others)


def refusal(**others: object) -> str:
    return read_refusal(check_inputs, settings(**others))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint ``tiny`` and the text ``book.txt``."""
    folder = tmp_path_factory.mktemp("inputs")
    write_checkpoint(folder / "tiny")
    (folder / "book.txt").write_text(text(200), encoding="utf-8")
    return folder


def test_sound_inputs_are_accepted(inputs: Path) -> None:
    check_inputs(settings())
    check_inputs(settings(model="synthetic", corpus=None))
    check_inputs(settings(model="openai-community/gpt2", corpus="acme/no-such"))  # ids of the hub are left alone
    check_inputs(settings(model=str(inputs / "tiny"), corpus=str(inputs / "book.txt")))
    check_inputs(settings(model=str(inputs / "tiny"), corpus=str(inputs)))


@pytest.mark.parametrize("name", ["/no/such", "./no-such", "~/no-such", "~nobody-here/x", "a/b/c", "a\0b", "no such"])
def test_missing_inputs_of_any_name(name: str) -> None:
    shown = escape_unprintable(name)
    assert refusal(model=name).startswith(f"There is no model directory '{shown}'; give a directory, a hub id")
    assert refusal(corpus=name).startswith(f"There is no corpus file '{shown}'; give a .txt/.jsonl/.parquet file")


def test_telemetry_is_off_wherever_models_are_loaded() -> None:
    code = "import extract.hub; from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)"
    kept = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name and name != "DO_NOT_TRACK"}
    root = str(Path(checks.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | {"PYTHONPATH": root}, capture_output=True, check=True
    )
    assert done.stdout == b"True\n"


ACTING = "\x1b]0;title\x07\n\r\t\x7f\x9b2J\x85\u200b\u200d\u200e\u202a\u202e\u2028\u2029\u2066\u2069\u00ad\ufeff"
"""Escape sequences, line ends, delete, C1 controls, marks of direction, joiners and others without a shape."""


def test_what_acts_on_a_terminal_shows_as_escapes() -> None:
    shown = escape_unprintable(f"a{ACTING}b")
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == f"a{ACTING}b"
    assert escape_unprintable("Γειά, 世界 'two' \\") == "Γειά, 世界 'two' \\"
    assert escape_unprintable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"
    assert escape_unprintable("\ud800") == r"\ud800"
    assert escape_unprintable("no\u00a0break, wide\u3000space\u202f%") == "no\u00a0break, wide\u3000space\u202f%"


def test_names_in_the_log_are_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / f"a{ACTING}b"
    write_checkpoint(folder)
    tiny_tokenizer(bos=False).save_pretrained(folder)
    (folder / "book.txt").write_text(text(200), encoding="utf-8")
    asked = ExtractionSettings(model=str(folder), corpus=str(folder / "book.txt"), context_length=16, sequences=1)
    with caplog.at_level(logging.DEBUG, logger="extract"):
        for _ in range(2):  # a finished store says nothing again
            extract(asked, study="tiny", path=LocalPlace(tmp_path / "store"))
    (said,) = (record.getMessage() for record in caplog.records if record.name.startswith("extract"))
    assert said.startswith(f"sequences of '{escape_unprintable(str(folder))}' begin with no special token: ")
    assert said.isprintable()
