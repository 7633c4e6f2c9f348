"""``studies.yaml``: whatever stands in it is read or refused in one line, and what is recorded is read back.

An entry that is a family becomes studies, which run in order; one that fails stops no other. A study is held against
its twin of random weights, and both are made in order.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_project.assets.asset import Asset, Work
from dagster_project.command import results, runs
from dagster_project.definitions import defs
from dagster_project.defs import schedules as sensors
from dagster_project.study.home import HOME_VARIABLE, NAME, Home
from dagster_project.study.settings import SEQUENCES, Study, choose_controls, find_twin_name, make_random_twin
from dagster_project.study.studies import (
    check_twin,
    expand_names,
    find_study,
    list_families,
    list_readable_studies,
    list_studies,
    locate_shipped_file,
    parse_study,
    read_studies,
    record_study,
    record_tentatively,
)
from dagster_project.upkeep import plan as planning
from dagster_project.upkeep.plan import plan
from storage.errors import UserError
from tests.dagster_project.driver import attention_geometry, files
from tests.dagster_project.making import NAMES
from tests.dagster_project.recorded import TINY, write_studies

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


entries = st.dictionaries(
    st.text(max_size=5) | st.integers(),
    values
    | st.builds(lambda family: {**DESCRIBED, "family": family}, values | st.dictionaries(st.text(max_size=3), values)),
    max_size=4,
)


@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        (values | st.builds(lambda each: {"studies": each}, entries)).map(yaml.safe_dump).map(str.encode),
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


SIZES = {**TINY, "family": {"context_length": [16, 24, 20]}}
"""A family whose members take a moment; the order is that of the list."""

PAIR = {**TINY, "family": {"context_length": [16, 12]}}
PAIR_MEMBERS = ("sizes-16", "sizes-12")


@pytest.mark.parametrize(
    ("axis", "listed", "members"),
    [
        ("context_length", [16, 8], {"16": {"context_length": 16}, "8": {"context_length": 8}}),
        ("dtype", ["float32", "bfloat16"], {"float32": {"dtype": "float32"}, "bfloat16": {"dtype": "bfloat16"}}),
        ("revision", ["step0", "refs/pr/3"], {"step0": {"revision": "step0"}, "3": {"revision": "refs/pr/3"}}),
        ("gguf", ["M.Q8_0.gguf", "M.Q4_1.gguf"], {f"m.q{of}": {"gguf": f"M.Q{of}.gguf"} for of in ("8_0", "4_1")}),
        ("model", ["a/One B", "b/two"], {"one-b": {"id": "a/One B"}, "two": {"id": "b/two"}}),
        (
            "precision",
            {"full": {}, "half": {"dtype": "bfloat16"}, "other": {"model": {"weights": "random"}}},
            {"full": {}, "half": {"dtype": "bfloat16"}, "other": {"weights": "random"}},
        ),
    ],
)
def test_a_family_is_a_study_for_each_value(
    tmp_path: Path, axis: str, listed: object, members: dict[str, dict[str, object]]
) -> None:
    """Each with the settings of the entry but those in which it differs."""
    model = {"id": "some/where"}
    home = write_studies(tmp_path, sizes={**DESCRIBED, "model": model, "family": {axis: listed}})
    named = {f"sizes-{value}": changes for value, changes in members.items()}
    family = list_families(home)["sizes"]
    assert (family.axis, list(family.members)) == (axis, [*named])
    for name, changes in named.items():
        own = changes.keys() & {"id", "revision", "gguf", "weights"}
        settings = {**DESCRIBED, "model": model | changes} if own else {**DESCRIBED, "model": model, **changes}
        assert find_study(home, name) == parse_study(name, settings, "test")
    assert list(read_studies(home.studies_file)) == [*named]
    assert expand_names(home, ["sizes", "embedded", next(iter(named))]) == [*named, "embedded"]


@pytest.mark.parametrize(
    ("family", "told"),
    [
        (["step0", "step1"], "should be one axis with its values"),
        ({"dtype": ["float32", "bfloat16"], "context_length": [8, 16]}, "should be one axis with its values"),
        ({"context_length": [8]}, "should list 2 to 1000 values"),
        ({"flavour": ["sweet", "sour"]}, "unknown axis 'flavour'; the axes are model, revision, gguf, quantised, "),
        ({"model": ["a/same", "b/same"]}, "no name, or the same"),
        ({"model": ["日", "b"]}, "no name, or the same"),
        ({"context_length": [8, 1.5]}, "should list names or whole numbers, found 1.5"),
        ({"precision": {"full": {}, "half": "bfloat16"}}, "should be the settings in which this member differs"),
        ({"context_length": [8, 16]}, "has a member 'clash-16', but another entry has this name"),
    ],
)
def test_a_family_with_an_error_is_refused_and_hides_no_other(tmp_path: Path, family: object, told: str) -> None:
    name = "clash"
    entries = {name: {**DESCRIBED, "family": family}, "good": DESCRIBED, "clash-16": DESCRIBED, "sizes": SIZES}
    home = write_studies(tmp_path, **entries)
    found, errors = list_readable_studies(home)
    assert {"good", "clash-16", "sizes-24"} <= found.keys()
    assert list(errors) == [name]
    assert told in str(errors[name])
    assert "\n" not in str(errors[name])
    assert f"family '{name}'" in str(errors[name]) or f"study '{name}', field 'family'" in str(errors[name])
    with pytest.raises(UserError, match=name):
        find_study(home, name)
    assert find_study(home, "good") == parse_study("good", DESCRIBED, "test")
    assert attention_geometry("run", name, home=tmp_path).complaint == str(errors[name])


def test_names_of_families_are_taken(tmp_path: Path) -> None:
    home = write_studies(tmp_path, sizes=SIZES, embedded=SIZES)
    assert find_study(home, "sizes-16").context_length == 16
    with pytest.raises(UserError, match="name of a family"):
        record_study(home, "sizes", DESCRIBED)
    write_studies(tmp_path, embedded=SIZES)
    assert list_families(home).get("embedded") is None, "a shipped study is hidden by a family"
    with pytest.raises(UserError, match="family of studies; name one of them, such as sizes-16"):
        find_study(write_studies(tmp_path, sizes=SIZES), "sizes")


def test_members_run_in_order_and_one_that_fails_stops_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_studies(tmp_path, sizes=SIZES)
    asked: list[str] = []

    def run(_home: Home, name: str, **_how: object) -> list[str]:
        asked.append(name)
        if name == "sizes-24":
            raise OSError("The disk\nis full")
        return []

    monkeypatch.setattr(runs, "run_study", run)
    done = attention_geometry("run", "sizes", "--json", home=tmp_path)
    assert asked == ["sizes-16", "sizes-24", "sizes-20"]
    outcomes = {row["study"]: row["outcome"] for row in map(json.loads, done.text.splitlines())}
    assert (outcomes["sizes-16"], outcomes["sizes-20"]) == ("done", "done")
    assert "The disk is full" in outcomes["sizes-24"]
    assert done.code == 1
    assert "1 of 3 studies of 'sizes' failed; the first, sizes-24" in done.errors.splitlines()[-1]


def test_one_process_makes_a_family_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, said = write_studies(tmp_path, sizes=SIZES), "Another process is working on study 'sizes'"
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    with home.reserve("sizes"), dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(UserError, match=said):
            runs._run_family(home, list_families(home)["sizes"], {})
        instance.add_dynamic_partitions("family", ["sizes"])
        job = defs().resolve_job_def("families")
        with pytest.raises(dg.DagsterResourceFunctionError) as refused:
            job.execute_in_process(instance=instance, partition_key="sizes")
    assert said in str(refused.value.__cause__)


@pytest.mark.long
def test_a_family_runs_and_is_listed_refreshed_and_cleared(tmp_path: Path) -> None:
    home = write_studies(
        tmp_path, sizes={**PAIR, "keep_tensors": False}, lost={**TINY, "family": {"context_length": [8, 40]}}
    )
    done = attention_geometry("run", "sizes", home=tmp_path)
    assert done.code == 0, done.errors
    assert all(home.report(name).exists() for name in PAIR_MEMBERS)
    assert not any(path.name.endswith(".npy") for path in (tmp_path / "tensors").rglob("*"))
    before = files(tmp_path)
    again = attention_geometry("run", "sizes", home=tmp_path)
    assert again.errors.count("assets are current") == 2
    assert files(tmp_path) == before
    listed = attention_geometry("studies", home=tmp_path, COLUMNS="200").text
    assert "2 studies by context_length: 2 reported" in listed
    assert "2 studies by context_length: 2 not run" in listed
    assert "sizes-16" not in listed
    assert "sizes-16" in attention_geometry("studies", "sizes", home=tmp_path).text
    rows = [json.loads(line) for line in attention_geometry("studies", "--json", home=tmp_path).text.splitlines()]
    assert [row["study"] for row in rows if row["family"] == "sizes"] == [*PAIR_MEMBERS]
    assert "no family 'embedded'" in attention_geometry("studies", "embedded", home=tmp_path).complaint.lower()
    assert attention_geometry("clear", "sizes", "--yes", home=tmp_path).code == 0
    assert not list((tmp_path / "warehouse").glob("*.duckdb"))
    assert {*PAIR_MEMBERS} <= set(list_studies(home))


def plan_refresh(home: Path, *names: str) -> dict[str, str]:
    """What a refresh would do with each study and family: its state, and why it is stale."""
    told = attention_geometry("refresh", *names, "--dry-run", "--json", home=home).text.splitlines()
    return {row["study"]: row["reasons"] for row in map(json.loads, told) if row["state"] != "never run"}


def describe(home: Path, name: str) -> str:
    """The state that ``doctor`` tells of a published database."""
    stores = json.loads(attention_geometry("doctor", "--json", home=home).text)["stores"]
    (found,) = [row["state"] for row in stores if (row["store"], row["study"]) == ("warehouse", name)]
    return str(found)


def ask_sensor(home: Home, monkeypatch: pytest.MonkeyPatch, running: str = "") -> list[str]:
    """The families that the sensor would make again."""
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    monkeypatch.setattr(sensors, "find_unended_runs", lambda _: {running: "run"})
    loaded = defs()
    given: dict[str, Any] = {"repository_def": loaded.get_repository_def()}
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.partition_loading_context(dynamic_partitions_store=instance),
        dg.build_sensor_context(instance=instance, **given) as context,
    ):
        tick = loaded.resolve_sensor_def("families_current").evaluate_tick(context)
        assert {*list_families(home)} <= set(instance.get_dynamic_partitions("family"))
    return [str(request.partition_key) for request in tick.run_requests]


@pytest.mark.long
def test_a_family_follows_its_members_whatever_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_studies(tmp_path, sizes=SIZES)
    assert plan_refresh(tmp_path)["sizes"] == "stale"
    assert ask_sensor(home, monkeypatch) == []
    for member in ("sizes-16", "sizes-24"):
        assert attention_geometry("run", member, home=tmp_path).code == 0
    assert ask_sensor(home, monkeypatch, running="sizes-20") == []
    assert ask_sensor(home, monkeypatch) == ["sizes"]
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("family", ["sizes"])
        assert defs().resolve_job_def("families").execute_in_process(instance=instance, partition_key="sizes").success
    assert ask_sensor(home, monkeypatch) == []
    assert "Without results: 20." in (home.families / "sizes.html").read_text(encoding="utf-8")
    assert describe(tmp_path, "sizes").startswith("family of 3 studies; missing: sizes-20, current")
    done = attention_geometry("refresh", "sizes", "--json", home=tmp_path)
    outcomes = {row["study"]: row["outcome"] for row in map(json.loads, done.text.splitlines())}
    assert outcomes == {"sizes-16": "", "sizes-24": "", "sizes-20": "done", "sizes": "done"}
    assert "Without results" not in (home.families / "sizes.html").read_text(encoding="utf-8")
    assert plan_refresh(tmp_path, "sizes-16") == {"sizes-16": "fresh", "sizes": "fresh"}
    (home.families / "sizes.html").unlink()
    assert plan_refresh(tmp_path, "sizes")["sizes"] == "family: page: missing"
    write_studies(tmp_path, sizes={**TINY, "family": {"context_length": [24, 16]}})
    assert plan_refresh(tmp_path, "sizes")["sizes"] == "family: tables: made from other sizes-20"
    write_studies(tmp_path, sizes={**TINY, "family": {"context_length": [24, 16, 20]}})
    assert plan_refresh(tmp_path, "sizes")["sizes"] == "family: tables: made from other order of members"
    assert "stale (tables: made from other order of members)" in describe(tmp_path, "sizes")
    write_studies(tmp_path)
    assert "that no entry defines: attention-geometry clear sizes" in describe(tmp_path, "sizes")
    assert attention_geometry("clear", "sizes", "--yes", home=tmp_path).code == 0
    assert not (tmp_path / "warehouse" / "sizes.duckdb").exists()


TABLES = tuple(name for name in NAMES if name not in planning.SHOWING)  # The assets that a study needs of its twin

GIVEN = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 20, "queries": [31, 63]}


def write_page(home: Home, name: str) -> None:
    """A page of a study, stale."""
    page = home.report(name)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("<!doctype html>", encoding="utf-8")


def test_a_twin_is_the_same_study_on_random_weights(tmp_path: Path) -> None:
    """With no more sequences than its study, its last query, one temperature and no probe."""
    controls = {"twin": "random", "probe": "repeated", "every_query": True}
    home = write_studies(tmp_path, mine={**GIVEN, **controls, "analysis": {"kappas": [0.1, 3], "scale": "raw"}})
    mine, twin = find_study(home, "mine"), find_study(home, "mine-random")
    assert find_twin_name("mine", mine) == "mine-random"
    assert (mine.model.weights, twin.model.weights) == ("trained", "random")
    assert (twin.model.id, twin.corpus, twin.context_length) == (mine.model.id, mine.corpus, mine.context_length)
    assert (twin.sequences, twin.query_positions, twin.twin) == (SEQUENCES, (63,), None)
    assert make_random_twin(mine.model_copy(update={"sequences": 3})).sequences == 3
    assert (mine.every_query, twin.every_query, mine.probe, twin.probe) == (True, False, "repeated", None)
    assert (len(mine.analysis.temperatures), twin.analysis.temperatures) == (5, (1,))
    assert (twin.analysis.kappas, twin.analysis.scale) == (mine.analysis.kappas, mine.analysis.scale)
    assert {"mine", "mine-random"} <= set(list_studies(home))
    assert list(read_studies(home.studies_file)) == ["mine", "mine-random"]
    check_twin(home, "mine", mine)


def hold(home: Home) -> None:
    """Read all studies, and hold ``mine`` against its twin."""
    list_studies(home)
    check_twin(home, "mine", find_study(home, "mine"))


RANDOM_MODEL = {"id": "embedded", "weights": "random"}


@pytest.mark.parametrize(
    ("studies", "told"),
    [
        ({"mine": {**GIVEN, "twin": "other"}, "other": GIVEN}, "its weights are trained"),
        ({"mine": {**GIVEN, "twin": "absent"}}, "absent"),
        (
            {
                "mine": {**GIVEN, "twin": "other"},
                "other": {**GIVEN, "model": {"id": "some/where", "weights": "random"}},
            },
            "its model is some/where, not embedded",
        ),
        ({"mine": {**GIVEN, "twin": "random"}, "mine-random": GIVEN}, "has the name of the twin"),
        ({"mine": GIVEN, "m" * 58: {**GIVEN, "twin": "random"}}, "use up to 57 characters, or leave out the twin"),
        (
            {"mine": {**GIVEN, "model": RANDOM_MODEL, "twin": "random"}},
            "only a model with trained weights can have a twin",
        ),
    ],
)
def test_what_is_no_twin_is_refused_in_a_line(tmp_path: Path, studies: dict[str, dict[str, object]], told: str) -> None:
    with pytest.raises(UserError, match=told):
        hold(write_studies(tmp_path, **studies))


def test_a_run_makes_the_twins_tables_and_its_page_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    home = write_studies(tmp_path, mine={**GIVEN, "twin": "random"})
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(runs, "run_assets", lambda _home, _name, assets, **_: made.append(tuple(assets)))
    runs.run_study(home, "mine")
    assert made == [TABLES, NAMES]
    assert caplog.messages == [
        "mine: 20 sequences, and 8 with random weights (the twin, mine-random): 1.4 times as many forward passes",
        f"mine-random: makes all {len(TABLES)} assets",
        f"mine: makes all {len(NAMES)} assets",
    ]
    made.clear()
    runs.run_study(home, "mine-random")
    assert made == [NAMES]
    made.clear()
    write_page(home, "mine-random")
    runs.run_study(home, "mine")
    assert made == [NAMES, NAMES]


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ((), {"twin": "random", "probe": "repeated", "every_query": True}),
        (("--no-twin", "--no-every-query"), {"twin": None, "probe": "repeated", "every_query": False}),
        (("--no-probe", "--twin", "other"), {"twin": "other", "probe": None, "every_query": True}),
        (("--random-weights",), {}),
        (("--random-weights", "--every-query"), {"every_query": True}),
    ],
)
def test_a_new_study_has_a_twin_and_a_probe_unless_it_is_told_otherwise(
    options: tuple[str, ...], recorded: dict[str, str | bool | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_studies(tmp_path, other={**GIVEN, "model": RANDOM_MODEL})
    monkeypatch.setattr(runs, "run_study", lambda *_, **__: None)
    monkeypatch.setattr(results, "print_results", lambda *_, **__: None)
    described = ("--model", "embedded", "--corpus", "embedded", "--context-length", "64")
    done = attention_geometry("run", "--name", "new", *described, *options, home=tmp_path)
    assert done.code == 0, done.errors
    new = yaml.safe_load(home.studies_file.read_text(encoding="utf-8"))["studies"]["new"]
    assert {name: new[name] for name in ("twin", "probe", "every_query") if name in new} == recorded


@pytest.mark.parametrize(("keys", "asked", "measured"), [(1024, None, True), (1025, None, False), (1025, True, True)])
def test_every_query_of_a_long_context_is_measured_on_request(keys: int, asked: bool | None, measured: bool) -> None:
    chosen = choose_controls(None, no_twin=False, no_probe=False, every_query=asked, default=True, keys=keys)
    assert chosen["every_query"] is measured


def test_controls_that_contradict_each_other_or_belong_to_a_recorded_study_are_refused(tmp_path: Path) -> None:
    write_studies(tmp_path, mine=GIVEN)
    for options, told in (
        (("--name", "new", "--twin", "other", "--no-twin"), "--twin other and --no-twin exclude each other"),
        (("mine", "--no-probe"), "The settings of study 'mine' are in studies.yaml"),
    ):
        assert told in attention_geometry("run", *options, home=tmp_path).complaint


def test_a_refresh_leaves_the_page_of_a_twin_alone_unless_it_is_named_or_there(tmp_path: Path) -> None:
    home = write_studies(
        tmp_path,
        mine={**GIVEN, "twin": "random"},
        held={**GIVEN, "twin": "other"},
        other={**GIVEN, "model": RANDOM_MODEL},
    )

    def planned(*names: str) -> dict[str, tuple[str, ...]]:
        with dg.DagsterInstance.ephemeral() as instance:
            return {entry.study: tuple(entry.why) for entry in plan(home, instance, "command", names).entries}

    found = planned()
    assert found["mine-random"] == TABLES
    assert found["mine"] == found["held"] == found["other"] == NAMES
    assert planned("mine-random") == {"mine-random": NAMES}
    write_page(home, "mine-random")
    assert planned()["mine-random"] == NAMES


def test_tables_beside_a_twin_are_stale_with_its_tables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_studies(tmp_path, mine={**GIVEN, "twin": "random"})
    examined = planning.find_stale_assets
    reasons: dict[str, str] = {}
    monkeypatch.setattr(planning, "find_stale_assets", lambda *_given: reasons)
    monkeypatch.setattr(Work, "landed_twin", {"landing": 0})
    monkeypatch.setattr(Asset, "explain_staleness", lambda _asset, _snapshot: None)
    mine = find_study(home, "mine")
    reasons.update(report="missing", claims="missing")
    assert examined(home, "mine", mine) == {}
    reasons.update(warehouse="missing")
    follow = dict.fromkeys(("claims", "report"), "follows from warehouse")
    assert examined(home, "mine", mine) == {"warehouse": "its twin 'mine-random' is stale", **follow}
