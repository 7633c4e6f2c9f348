"""What may be asked for, what is said of the rest before anything heavy is imported, and how it is shown."""

import logging
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from dagster_project.study.studies import parse_study
from extract import checks
from extract.checks import check_inputs
from extract.extraction import extract
from extract.settings import ExtractionSettings, Shard
from storage.errors import UserError, escape_unprintable
from storage.files.places import LocalPlace
from tests.extract.tiny import text, tiny_tokenizer, write_checkpoint
from tests.refusals import read_refusal

GIVEN = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 1}
QUERY_FIELD = "studies.yaml: study 'one', field 'queries': "


@pytest.mark.parametrize(
    ("queries", "positions"),
    [(None, (63,)), (7, (7,)), ([7], (7,)), ([63, 1, 7], (1, 7, 63)), ((1, 7, 63), (1, 7, 63))],
)
def test_queries_are_positions_in_ascending_order(queries: object, positions: tuple[int, ...]) -> None:
    study = parse_study("one", GIVEN | {"queries": queries}, "studies.yaml")
    assert study.query_positions == study.select_extraction().query_positions == positions
    assert study.queries == (None if queries is None else positions)
    for form in ("json", "python"):
        assert parse_study("one", study.model_dump(mode=form), "studies.yaml") == study


NO_POSITIONS = "input should be a position or a list of positions, whole numbers from 1, found "


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (list(range(1, 66)), "input should name 1 to 64 positions, not 65, found [1, 2, "),
        ([7, 9, 7], "input should name every position only once, found [7, 9, 7]"),
        ([0, 7], "positions should be 1 or more: the query at 0 has only one key, found [0, 7]"),
        ([7, 64], "positions should be below context_length, which is 64, found [7, 64]"),
        ([7, "9"], f"{NO_POSITIONS}[7, '9']"),
        ("last", f"{NO_POSITIONS}'last'"),
    ],
)
def test_queries_with_an_error(queries: object, said: str) -> None:
    message = read_refusal(parse_study, "one", GIVEN | {"queries": queries}, "studies.yaml")
    assert message.startswith(f"{QUERY_FIELD}{said}")
    assert "more)" not in message


def test_queries_without_a_length_do_not_hide_that_it_is_missing() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "context_length"}
    with pytest.raises(UserError, match=r"field 'context_length' is missing; add it \(tokens in each sequence\)$"):
        parse_study("one", given | {"queries": [7]}, "studies.yaml")


# --- random weights ---


def test_weights_are_the_checkpoint_s_unless_random_ones_are_asked_for() -> None:
    study = parse_study("one", GIVEN, "studies.yaml")
    assert study.select_extraction().weights_seed is None
    assert study.model_dump(mode="json")["model"] == {"id": "embedded", "revision": "main"}  # as it was
    drawn = parse_study("one", GIVEN | {"model": {"id": "embedded", "weights": "random"}, "seed": 7}, "studies.yaml")
    assert drawn.select_extraction().weights_seed == 7
    seeded = {"id": "embedded", "weights": "random", "weights_seed": 0}
    drawn = parse_study("one", GIVEN | {"model": seeded, "seed": 7}, "studies.yaml")
    assert drawn.select_extraction().weights_seed == 0
    assert drawn.model_dump(mode="json")["model"] == seeded | {"revision": "main"}
    for form in ("json", "python"):
        assert parse_study("one", drawn.model_dump(mode=form), "studies.yaml") == drawn


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            {"id": "embedded", "weights_seed": 1},
            "field 'model.weights_seed': input is only allowed with `weights: random`",
        ),
        (
            {"id": "synthetic", "weights": "random"},
            "field 'model.weights': a synthetic study has no model and no",
        ),
    ],
)
def test_random_weights_with_an_error(model: dict[str, object], said: str) -> None:
    assert said in read_refusal(parse_study, "one", GIVEN | {"model": model}, "studies.yaml")


# --- GGUF files ---


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
    study = parse_study("one", GIVEN | {"model": model}, "studies.yaml")
    assert (study.model.is_file, study.model.name) == (is_file, name)
    assert parse_study("one", study.model_dump(mode="json"), "studies.yaml") == study
    assert ("gguf" in study.model_dump()["model"]) is isinstance(model, dict)


def test_a_named_file_is_inside_a_directory_or_repository() -> None:
    for identity in ("embedded", "synthetic", "tiny.gguf", "package:acme/tiny.gguf"):
        said = read_refusal(
            parse_study, "one", GIVEN | {"model": {"id": identity, "gguf": "other.gguf"}}, "studies.yaml"
        )
        assert "model.gguf': input is only allowed with a directory or a hub id" in said
    for name in ("../a.gguf", "a/../../b.gguf", "a.bin", "a\\b.gguf"):
        said = read_refusal(parse_study, "one", GIVEN | {"model": {"id": "acme/tiny", "gguf": name}}, "studies.yaml")
        assert "should be the name of a .gguf file inside the directory or repository" in said


@pytest.mark.parametrize("name", ["sink_measure", "every_query"])
def test_what_takes_the_weights_of_all_queries_is_off_unless_asked_for(name: str) -> None:
    study = parse_study("one", GIVEN, "studies.yaml")
    assert getattr(study.select_extraction(), name) is False
    assert name not in study.model_dump(mode="json")
    asked = parse_study("one", GIVEN | {name: True}, "studies.yaml")
    assert getattr(asked.select_extraction(), name) is True
    assert parse_study("one", asked.model_dump(mode="json"), "studies.yaml") == asked
    drawn = {"model": "synthetic", "context_length": 64, "sequences": 1, name: True}
    with pytest.raises(UserError, match=f"'{name}': a synthetic study has only the weights of the chosen queries"):
        parse_study("one", drawn, "studies.yaml")


def test_a_probe_is_one_of_repeated_tokens_for_a_model_that_reads() -> None:
    study = parse_study("one", GIVEN, "studies.yaml")
    assert "probe" not in study.model_dump(mode="json")
    asked = parse_study("one", GIVEN | {"probe": "repeated"}, "studies.yaml")
    assert parse_study("one", asked.model_dump(mode="json"), "studies.yaml") == asked
    with pytest.raises(UserError, match="'probe': input should be 'repeated'"):
        parse_study("one", GIVEN | {"probe": "prose"}, "studies.yaml")
    with pytest.raises(UserError, match="'probe': a synthetic study has no model that could read it"):
        parse_study("one", {"model": "synthetic", "context_length": 64, "probe": "repeated"}, "studies.yaml")


# --- batches and devices ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch_size": "all"}, "field 'batch_size': input should be auto or a whole number from 1, found 'all'"),
        ({"dtype": "int8"}, "field 'dtype': input should be 'float32', 'bfloat16' or 'float16', found 'int8'"),
        ({"device_map": "all"}, "field 'device_map': input should be 'auto', 'balanced'"),
        (
            {"device_map": "auto", "device": "cpu"},
            "field 'device_map': input is only allowed with `device: auto` or `device: cuda`, found 'auto'",
        ),
        (
            {"device_map": "auto", "model": "synthetic", "corpus": None},
            "field 'device_map': a synthetic study is drawn in float32 on the CPU",
        ),
    ],
)
def test_numbers_and_devices_with_an_error(given: dict[str, object], said: str) -> None:
    message = read_refusal(parse_study, "one", GIVEN | given, "studies.yaml")
    assert message.startswith(f"studies.yaml: study 'one', {said}")


def test_batches_and_devices_as_asked() -> None:
    study = parse_study("one", GIVEN, "studies.yaml")
    assert (study.batch_size, study.device_map, study.values) == ("auto", None, "float32")
    for device in ("auto", "cuda"):
        given = {"batch_size": 3, "device_map": "balanced", "device": device, "values": "float16"}
        study = parse_study("one", GIVEN | given, "studies.yaml")
        assert (study.batch_size, study.device_map, study.values) == (3, "balanced", "float16")
        assert parse_study("one", study.model_dump(mode="json"), "again") == study


# --- shards ---


def test_shards_are_consecutive_and_cover_every_sequence_once() -> None:
    for total, count in product((1, 2, 9, 100), (1, 2, 7, 12)):
        parts = [Shard.parse(f"{index}/{count}").select_sequences(total) for index in range(1, count + 1)]
        assert [index for part in parts for index in part] == list(range(total))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_what_is_no_shard() -> None:
    for given in ("", "2/", "a/b", "2/4/8", "-1/4", "1.5/4", "²/4"):
        assert "is not a shard; give K/N, the K-th of N parts counted from 1" in read_refusal(Shard.parse, given)
    for given in ("0/4", "5/4", "0/0"):
        said = f"There is no shard {given[0]} of {given[2]}; give K/N with K"
        assert read_refusal(Shard.parse, given).startswith(said)


def settings(**others: object) -> ExtractionSettings:
    standard = {"model": "embedded", "corpus": "embedded", "context_length": 32, "sequences": 1}
    return ExtractionSettings.model_validate(standard | others)


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


def test_what_is_no_device() -> None:
    given = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 1}
    for device in ("gpu", "cuda:", "CPU", "cuda:-1", "cpu\x1b[2J", "cuda:1\n", ""):
        said = read_refusal(parse_study, "one", given | {"device": device}, "studies.yaml")
        assert "field 'device': string should match pattern" in said


@pytest.mark.parametrize(
    "model", ["embedded", "synthetic", "./somewhere", "inputs", "no-such/a.gguf", "package:acme/a.gguf"]
)
def test_a_local_model_has_no_revisions(model: str, inputs: Path) -> None:
    name = str(inputs / "tiny") if model == "inputs" else model
    given = {"model": {"id": name, "revision": "v2"}, "context_length": 64, "sequences": 1}
    given |= {} if model == "synthetic" else {"corpus": "embedded"}
    assert read_refusal(parse_study, "one", given, "studies.yaml").startswith(
        "studies.yaml: study 'one', field 'model.revision': input is only allowed with a hub id, but the model "
        f"'{name}' is local; leave it out, found 'v2'"
    )


def test_a_model_of_the_hub_has_revisions(inputs: Path) -> None:
    assert settings(model={"id": "acme/tiny", "revision": "v2"}).model.revision == "v2"
    assert settings(model={"id": str(inputs / "tiny"), "revision": "main"}).model.revision == "main"


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
