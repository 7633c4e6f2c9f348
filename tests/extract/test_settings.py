"""Queries, batches, devices and shards of a study: what may be asked for, and what is said of the rest."""

from itertools import product

import pytest

from dagster_project.study.studies import parse_study
from extract.settings import Shard
from storage.errors import UserError
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
    for text in ("", "2/", "a/b", "2/4/8", "-1/4", "1.5/4", "²/4"):
        assert "is not a shard; give K/N, the K-th of N parts counted from 1" in read_refusal(Shard.parse, text)
    for text in ("0/4", "5/4", "0/0"):
        assert read_refusal(Shard.parse, text).startswith(f"There is no shard {text[0]} of {text[2]}; give K/N with K")
