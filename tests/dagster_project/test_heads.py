"""The commands ``export`` and ``scores`` on a landed study: files, rows that later landings keep, refusals."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_project.command.heads import _describe, add_scores, export_heads
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import connect, locate_database
from tests.dagster_project import making, recorded

NAME = "mine"
SETTINGS = recorded.TINY | {"synthetic": {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}}
EXPORT: dict[str, Any] = {
    "form": "retrieval",
    "measure": "effective_keys",
    "group": "max",
    "inverted": False,
    "sink_size": 4,
    "recent_size": 8,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which a study of two layers with two KV heads each has landed."""
    root = tmp_path_factory.mktemp("scored")
    recorded.write_studies(root, **{NAME: SETTINGS})
    found = Home(root)
    making.extract(found, NAME)
    making.measure(found, NAME)
    making.summarise(found, NAME)
    assert making.land(found, NAME).published
    return found


def landed(home: Home) -> list[tuple[Any, ...]]:
    with closing(connect(home.warehouse)) as connection:
        return connection.execute(
            "SELECT source, format, count(*), sum(score) FROM external_scores GROUP BY ALL ORDER BY ALL"
        ).fetchall()


@pytest.mark.slow
def test_scores_land_beside_the_study_and_later_landings_keep_them(home: Home, tmp_path: Path) -> None:
    (path,) = (path for path in export_heads(home, NAME, tmp_path / "a.json", **EXPORT) if path.name == "a.json")
    before = locate_database(home.warehouse, NAME).stat().st_ino
    with closing(connect(home.warehouse)) as reader:
        found = add_scores(home, NAME, path, form="retrieval", source=None)
        assert reader.sql("FROM external_scores").fetchall() == []  # it keeps the version that it opened
    assert locate_database(home.warehouse, NAME).stat().st_ino != before
    first = found.to_pylist()[0]
    assert first["correlation"] == pytest.approx(1)
    assert (first["says"], first["heads"]) == ("undecided", 8), "two KV groups a layer can be arranged in too few ways"
    assert "effective_keys" in {row["measure"] for row in found.to_pylist() if row["correlation"] == pytest.approx(1)}
    (tmp_path / "b.csv").write_text("layer,head,score\n0,0,1\n0,1,2\n1,3,4\n")
    add_scores(home, NAME, tmp_path / "b.csv", form="csv", source="mine")
    total = sum(sum(scores) / len(scores) for scores in json.loads(path.read_text()).values())
    both = [("a", "retrieval", 8, pytest.approx(total)), ("mine", "csv", 3, 7.0)]
    assert landed(home) == both
    add_scores(home, NAME, tmp_path / "b.csv", form="csv", source="mine")  # the same again
    (tmp_path / "b.csv").write_text("layer,head,score\n0,0,5\n")
    with pytest.raises(UserError, match="has other scores named 'mine'; add --overwrite"):
        add_scores(home, NAME, tmp_path / "b.csv", form="csv", source="mine")
    assert landed(home) == both
    add_scores(home, NAME, tmp_path / "b.csv", form="csv", source="mine", overwrite=True)
    assert landed(home) == [both[0], ("mine", "csv", 1, 5.0)]
    assert making.land(home, NAME).published
    assert landed(home) == [both[0], ("mine", "csv", 1, 5.0)]


@pytest.mark.slow
def test_nothing_lands_of_a_file_that_is_refused(home: Home, tmp_path: Path) -> None:
    before = landed(home)
    (tmp_path / "c.csv").write_text("layer,head,score\n0,0,1\n7,0,1\n")
    with pytest.raises(UserError, match="head 0 in layer 7, which the model of the study does not have"):
        add_scores(home, NAME, tmp_path / "c.csv", form="csv", source=None)
    assert landed(home) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"form": "yaml"}, "There is no format 'yaml'; choose from duo, lukv, retrieval, csv, parquet, json"),
        ({"group": "median"}, "There is no rule 'median' to combine heads of one KV head; choose from max, mean"),
        ({"sink_size": 0}, "--sink-size 0 and --recent-size 8 are numbers of keys; set both to 1 or more"),
    ],
)
def test_options_that_do_not_exist(landed_root: Path, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        export_heads(Home(landed_root), "small", tmp_path / "x", **EXPORT | changed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["\udcff", "a\nb", "x" * 201])
def test_names_of_scores_that_cannot_be_stored(landed_root: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "s.csv").write_text("layer,head,score\n0,0,1\n")
    with pytest.raises(UserError, match="The scores cannot be named '"):
        add_scores(Home(landed_root), "small", tmp_path / "s.csv", form="csv", source=name)


def test_an_export_overwrites_nothing_unasked(landed_root: Path, tmp_path: Path) -> None:
    """Neither a checkpoint's configuration, which the format of DuoAttention also names so, nor a file beside it."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.json exists already; add --overwrite"):
        export_heads(Home(landed_root), "small", tmp_path / "checkpoint", **EXPORT | {"form": "duo"})
    (tmp_path / "x.made_from.json").mkdir()
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"made_from\.json is not a regular file"):
            export_heads(Home(landed_root), "small", tmp_path / "x", **EXPORT, overwrite=overwrite)
    with pytest.raises(UserError, match="/ is not a regular file"):
        export_heads(Home(landed_root), "small", Path("/"), **EXPORT)
    assert {path.name for path in tmp_path.rglob("*")} == {"checkpoint", "config.json", "x.made_from.json"}
    export_heads(Home(landed_root), "small", tmp_path / "checkpoint", **EXPORT | {"form": "duo"}, overwrite=True)
    assert json.loads((tmp_path / "checkpoint" / "config.json").read_text()) == {"sink_size": 4, "recent_size": 8}


@pytest.mark.parametrize(
    ("correlation", "p_holm", "says"),
    [(0.9, 0.01, "together"), (-0.9, 0.01, "opposed"), (0.9, 0.06, "undecided"), (None, None, None), (0.5, None, None)],
)
def test_scores_go_together_if_random_arrangements_do_not(
    correlation: float | None, p_holm: float | None, says: str | None
) -> None:
    assert _describe({"correlation": correlation, "p_holm": p_holm}) == says
