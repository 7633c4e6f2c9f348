"""``studies.yaml``: whatever stands in it is read or refused in one line, and what is recorded is read back."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_project.study.home import NAME, Home
from dagster_project.study.settings import AnalysisSettings, MonteCarloGrid, Study
from dagster_project.study.studies import (
    find_study,
    list_studies,
    locate_shipped_file,
    parse_study,
    read_studies,
    record_study,
    record_tentatively,
)
from storage.errors import UserError
from tests.refusals import read_refusal

DESCRIBED: dict[str, Any] = {"model": "embedded", "corpus": "embedded", "context_length": 8, "sequences": 1}


@contextmanager
def one_user_error(place: str) -> Iterator[None]:
    """Lets pass what a user is told, if it says where; nothing else."""
    try:
        yield
    except UserError as error:
        if place not in str(error):
            raise


names = st.from_regex(NAME, fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from([*Study.model_fields, "flavour", "model.id", "a\nb"])


@given(name=st.text(max_size=70) | values, changes=st.dictionaries(fields, values, max_size=4))
def test_a_study_is_read_or_refused_in_one_exception(name: object, changes: dict[str, object]) -> None:
    found: list[Study] = []
    with one_user_error("studies.yaml"):
        found.append(parse_study(name, DESCRIBED | changes, "studies.yaml"))
    if not found:
        return
    (study,) = found
    assert isinstance(name, str)
    assert Path(name).name == name
    assert study.sequences >= 1
    assert Study.model_validate(study.model_dump()) == study


@given(
    content=st.one_of(
        st.binary(max_size=60), st.text(max_size=60).map(str.encode), values.map(yaml.safe_dump).map(str.encode)
    )
)
def test_any_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "studies.yaml")
        path.write_bytes(content)
        with one_user_error(str(path)):
            read_studies(path)


@settings(max_examples=5)
@given(
    chosen=st.lists(names, unique=True, max_size=4),
    identity=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12),
    seed=st.integers(0, 2**40),
)
def test_what_is_recorded_is_read_back(chosen: list[str], identity: str, seed: int) -> None:
    described = {**DESCRIBED, "corpus": {"id": f"owner/{identity}", "split": "validation"}, "seed": seed}
    shipped = set(read_studies(locate_shipped_file()))
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for name in chosen:
            if name not in shipped:
                assert record_study(home, name, described) is True
                assert record_study(home, name, described) is False
        found = list_studies(home)
        assert list(found)[len(shipped) :] == [name for name in chosen if name not in shipped]
        for name in set(chosen) - shipped:
            assert found[name] == parse_study(name, described, "test")


def test_a_refused_study_is_taken_back_wherever_it_stands_by_then(tmp_path: Path) -> None:
    home = Home(tmp_path)
    record_study(home, "first", DESCRIBED)
    before = home.studies_file.read_text()
    with one_user_error("no model"), record_tentatively(home, "second", DESCRIBED | {"seed": 2}):
        record_study(home, "third", DESCRIBED | {"seed": 3})
        raise UserError("no model")
    assert list(read_studies(home.studies_file)) == ["first", "third"]
    assert home.studies_file.read_text().startswith(before)


@pytest.mark.parametrize("kept", ["store", "known", "crash"])
def test_a_study_stays_when_there_is_something_of_it_or_it_was_there(tmp_path: Path, kept: str) -> None:
    home = Home(tmp_path)
    if kept == "known":
        record_study(home, "mine", DESCRIBED)
    if kept == "store":
        Path(str(home.tensors("mine"))).mkdir(parents=True)
    error = RuntimeError("a bug") if kept == "crash" else UserError("a full disk")
    with pytest.raises(type(error)), record_tentatively(home, "mine", DESCRIBED):
        raise error
    assert list(read_studies(home.studies_file)) == ["mine"]


def test_comments_and_order_of_the_file_stay(tmp_path: Path) -> None:
    text = f"# by hand\nstudies:\n  b: {DESCRIBED}  # why\n\n\n"
    (tmp_path / "studies.yaml").write_text(text)
    record_study(Home(tmp_path), "a", DESCRIBED)
    assert (tmp_path / "studies.yaml").read_text().startswith(text.rstrip() + "\n  a:\n")
    assert list(read_studies(tmp_path / "studies.yaml")) == ["b", "a"]


def test_relative_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "book.txt").touch()
    text = "studies: {a: {model: ./m, corpus: {id: book.txt, pack: true}, context_length: 8, sequences: 1}}"
    (tmp_path / "studies.yaml").write_text(text)
    study = find_study(Home(tmp_path), "a")
    assert (study.model.id, study.corpus.id) == (f"{tmp_path}/m", f"{tmp_path}/book.txt")
    assert study.corpus.pack


LARGE = ["llama-2-7b", "gemma-7b", "mistral-7b", "gpt2"]
"""The shipped studies of the paper."""


def test_the_shipped_studies_have_those_of_the_paper_with_their_twins() -> None:
    shipped = read_studies(locate_shipped_file())
    for name in LARGE:
        assert (shipped[name].context_length, shipped[name].corpus.id) == (1024, "Skylion007/openwebtext")
        assert shipped[f"{name}-random"].model.weights == "random"
    for name in ("embedded", "synthetic"):
        assert shipped[name].model.id == shipped[name].corpus.id == name


def test_kappas_and_scale_decide_the_metrics_and_map_n_does_not() -> None:
    default = AnalysisSettings()
    assert default.select_measured() == {"kappas": [0.5], "scale": "unit"}
    assert AnalysisSettings(map_n=9).select_measured() == default.select_measured()
    assert AnalysisSettings(monte_carlo=MonteCarloGrid()).select_measured() == default.select_measured()
    assert AnalysisSettings(scale="raw").select_measured() != default.select_measured()
    assert AnalysisSettings(kappas=(2, 0.5)).select_measured() == {"kappas": [0.5, 2.0], "scale": "unit"}
    assert AnalysisSettings(kappas=(2, 0.5)) == AnalysisSettings(kappas=(0.5, 2))


def test_nulls_are_drawn_unless_a_study_wants_none() -> None:
    """Neither decides the metrics."""
    plain = AnalysisSettings()
    assert (plain.nulls.sequences, plain.nulls.draws) == (24, 4)
    for nulls, draws in ((None, 0), ({"draws": 0}, 0), ({"sequences": 4, "draws": 3}, 3)):
        asked = AnalysisSettings.model_validate({"nulls": nulls})
        assert asked.nulls.draws == draws
        assert asked.select_measured() == plain.select_measured()


@pytest.mark.parametrize(
    ("nulls", "said"),
    [
        ({"sequences": 0}, "field 'analysis.nulls.sequences': input should be greater than or equal to 1, found 0"),
        ({"draws": -1}, "field 'analysis.nulls.draws': input should be greater than or equal to 0, found -1"),
        ({"draw": 1}, "field 'analysis.nulls.draw' is unknown; did you mean 'analysis.nulls.draws'?"),
    ],
)
def test_nulls_that_cannot_be_drawn_are_named(nulls: dict[str, int], said: str) -> None:
    assert said in read_refusal(parse_study, "a", EFFECTS | {"analysis": {"nulls": nulls}}, "file")


@pytest.mark.parametrize("field", ["sequences", "context_length", "seed"])
def test_true_is_not_a_whole_number(field: str) -> None:
    with pytest.raises(UserError, match=f"field '{field}': input should be a valid integer, found True"):
        parse_study("a", DESCRIBED | {field: True}, "file")


EFFECTS = {"model": "m", "corpus": "c", "context_length": 32, "sequences": 4}


def test_effects_are_off_unless_they_are_asked_for() -> None:
    assert parse_study("a", EFFECTS, "file").analysis.effects is None
    asked = parse_study("a", EFFECTS | {"analysis": {"effects": {"sequences": 4, "budgets": [0.5]}}}, "file")
    assert asked.analysis.effects is not None
    assert asked.analysis.effects.ablation == ("zero", "mean", "sink", "selected")
    assert "analysis" not in asked.select_extraction().model_dump()
    assert "effects" not in asked.analysis.select_measured()


def test_maps_need_an_n_that_the_context_has() -> None:
    def parse(**given: object) -> int:
        return parse_study("a", EFFECTS | given, "file").analysis.map_n

    asked: dict[str, object] = {"analysis": {"map_n": 16}}
    assert parse(**asked, context_length=17) == 16
    assert parse(context_length=3) == 4  # lowered on the page
    with pytest.raises(UserError, match=r"map_n 16 is more than the largest N of the context, 15, found"):
        parse(**asked, context_length=16)
    with pytest.raises(UserError, match=r"map_n 16 is more than the largest N of the context, 11, found"):
        parse(**asked, queries=[7, 11])


@pytest.mark.parametrize(
    ("effects", "others", "said"),
    [
        ({"budgets": [0.5, 1.5], "sequences": 4}, {}, "less than or equal to 1, found 1.5"),
        ({"budgets": [0], "sequences": 4}, {}, "greater than 0"),
        ({"budgets": [0.5, 0.5], "sequences": 4}, {}, "input should name every value once"),
        ({"budgets": [0.01], "sequences": 4}, {}, "the budget 0.01 is less than one key of the context"),
        ({"ablation": ["nothing"], "sequences": 4}, {}, "input should be 'zero', 'mean', 'sink' or 'selected'"),
        ({"sequences": 5}, {}, "effects need 5 sequences, but the study has 4"),
        ({"sequences": 1}, {"sequences": 1}, "effects need 2 sequences, but the study has 1"),
        ({"sequences": 2}, {"model": "synthetic", "corpus": None}, "a synthetic study has no model"),
    ],
)
def test_effects_that_cannot_be_are_refused_in_one_line(
    effects: dict[str, object], others: dict[str, object], said: str
) -> None:
    assert said in read_refusal(parse_study, "a", EFFECTS | others | {"analysis": {"effects": effects}}, "file")
