"""Twins: which study is held against which of random weights, and that both are made in order."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from dagster_project.assets.asset import Asset, Work
from dagster_project.command import results, runs
from dagster_project.study.home import Home
from dagster_project.study.settings import SEQUENCES, choose_controls, find_twin_name, make_random_twin
from dagster_project.study.studies import check_twin, find_study, list_studies, read_studies
from dagster_project.upkeep import plan as planning
from dagster_project.upkeep.plan import plan
from storage.errors import UserError
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.making import NAMES
from tests.dagster_project.recorded import home_with

TABLES = tuple(name for name in NAMES if name not in planning.SHOWING)  # The assets that a study needs of its twin

GIVEN = {"model": "embedded", "corpus": "embedded", "context_length": 64, "sequences": 20, "queries": [31, 63]}


def note_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...], object]]:
    """Have runs do nothing but note the study, its assets and the one that is forced."""
    made: list[tuple[str, tuple[str, ...], object]] = []

    def note(_home: Home, name: str, assets: list[str], **given: object) -> None:
        made.append((name, tuple(assets), given.get("force")))

    monkeypatch.setattr(runs, "run_assets", note)
    return made


def write_page(home: Home, name: str) -> None:
    """A page of a study, stale."""
    page = home.report(name)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("<!doctype html>", encoding="utf-8")


def test_a_twin_is_the_same_study_on_random_weights(tmp_path: Path) -> None:
    """With no more sequences than its study, its last query, one temperature and no probe."""
    controls = {"twin": "random", "probe": "repeated", "every_query": True}
    home = home_with(tmp_path, mine={**GIVEN, **controls, "analysis": {"kappas": [0.1, 3], "scale": "raw"}})
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
        hold(home_with(tmp_path, **studies))


def test_a_run_makes_the_twins_tables_and_its_page_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    home = home_with(tmp_path, mine={**GIVEN, "twin": "random"})
    made = note_runs(monkeypatch)
    runs.run_study(home, "mine")
    assert [assets for _name, assets, _force in made] == [TABLES, NAMES]
    assert caplog.messages == [
        "mine: 20 sequences, and 8 with random weights (the twin, mine-random): 1.4 times as many forward passes",
        f"mine-random: makes all {len(TABLES)} assets",
        f"mine: makes all {len(NAMES)} assets",
    ]
    made.clear()
    runs.run_study(home, "mine-random")
    assert [assets for _name, assets, _force in made] == [NAMES]
    made.clear()
    write_page(home, "mine-random")
    runs.run_study(home, "mine")
    assert [assets for _name, assets, _force in made] == [NAMES, NAMES]


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
    home = home_with(tmp_path, other={**GIVEN, "model": RANDOM_MODEL})
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
    home_with(tmp_path, mine=GIVEN)
    for given, told in (
        (("--name", "new", "--twin", "other", "--no-twin"), "--twin other and --no-twin exclude each other"),
        (("mine", "--no-probe"), "The settings of study 'mine' are in studies.yaml"),
    ):
        assert told in attention_geometry("run", *given, home=tmp_path).complaint


def test_a_refresh_leaves_the_page_of_a_twin_alone_unless_it_is_named_or_there(tmp_path: Path) -> None:
    home = home_with(
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
    home = home_with(tmp_path, mine={**GIVEN, "twin": "random"})
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
