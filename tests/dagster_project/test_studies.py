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

from dagster_project.study.families import expand_families
from dagster_project.study.home import NAME, Home
from dagster_project.study.settings import Study
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


@given(
    entries=st.dictionaries(
        st.text(max_size=5) | st.integers(),
        values
        | st.builds(
            lambda family: {**DESCRIBED, "family": family}, values | st.dictionaries(st.text(max_size=3), values)
        ),
        max_size=4,
    )
)
def test_any_family_is_expanded_or_refused(entries: dict[str, object]) -> None:
    found = expand_families(entries)
    for name, study in found.studies.items():
        try:
            assert isinstance(parse_study(name, study, "here"), Study)
        except UserError as error:
            assert "here" in str(error)  # noqa: PT017
    assert all(member in found.studies for family in found.families.values() for member in family.members)
    assert len(found.families) + len([name for name in entries if name in found.studies]) >= len(entries)


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
