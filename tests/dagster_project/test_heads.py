"""The command ``export`` on a landed study: refusals, and nothing overwritten unasked."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_project.command.heads import export_heads
from dagster_project.study.home import Home
from storage.errors import UserError
from tests.dagster_project import recorded

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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"form": "yaml"}, "There is no format 'yaml'; choose from duo, lukv, retrieval, headvis, csv, parquet, json"),
        ({"group": "median"}, "There is no rule 'median' to combine heads of one KV head; choose from max, mean"),
        ({"sink_size": 0}, "--sink-size 0 and --recent-size 8 are numbers of keys; set both to 1 or more"),
    ],
)
def test_options_that_do_not_exist(landed_root: Path, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        export_heads(Home(landed_root), "small", tmp_path / "x", **EXPORT | changed)
    assert list(tmp_path.iterdir()) == []


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
