"""A data set is read by others' tools from any host, says what it holds, and nothing of the machine it is from."""

import json
import re
import resource
import shutil
from pathlib import Path

import duckdb
import pytest
import yaml
from pyarrow import parquet

import sql
from dagster_project.assets.publishing import MARKER, publish_dataset
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.dataset import CARD, DATABASE, TABLES
from tests.dagster_project.driver import attention_geometry, files

HOSTILE = "|`[x](javascript:alert(1))<script>alert(1)</script>\n---\n"


@pytest.fixture(scope="module")
def home(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root with the study ``mine``, whose tokens are hostile; its model and text are files of this machine."""
    root = tmp_path_factory.mktemp("hosted")
    shutil.copytree(mine / "warehouse", root / "warehouse")
    with duckdb.connect(root / "warehouse" / "mine.duckdb") as connection:
        connection.execute("UPDATE tokens SET token = ?", [HOSTILE])
    return Home(root)


@pytest.fixture(scope="module")
def hosted(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its data set; only read."""
    folder = tmp_path_factory.mktemp("public") / "heads"
    said = attention_geometry("publish", folder, "--dataset", "--license", "cc-by-4.0", home=home.root).text
    listed = [re.split(r"  ", line)[0] for line in said.splitlines()]
    assert listed == [*sorted(path.name for path in folder.iterdir() if path.name != MARKER), listed[-1]]
    assert re.fullmatch(rf"\d+ files in {folder}", listed[-1])
    return folder


def read_card(folder: Path) -> tuple[dict[str, object], str]:
    """The metadata of a card, and the rest of it."""
    _, metadata, rest = (folder / CARD).read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(metadata), rest


def test_the_database_and_the_parquet_files_hold_what_the_warehouse_does(home: Home, hosted: Path) -> None:
    def summarise(relation: str) -> object:
        return connection.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {relation} AS t").fetchall()

    with duckdb.connect(hosted / DATABASE, read_only=True) as connection:
        connection.execute(f"ATTACH '{home.warehouse / 'mine.duckdb'}' AS landed (READ_ONLY)")
        there = {path.stem for path in hosted.glob("*.parquet")}
        assert there == {name for name in TABLES if summarise(f"landed.{name}") != [(0, None)]}
        for name in there:
            assert summarise(name) == summarise(f"'{hosted / name}.parquet'"), name
        for name in there - {"studies", *sql.list_names("views")}:
            assert summarise(name) == summarise(f"landed.{name}"), name


def test_the_queries_of_the_card_run_as_they_stand(hosted: Path) -> None:
    _, rest = read_card(hosted)
    attach, *queries = re.findall(r"```sql\n(.*?)```", rest, re.DOTALL)
    assert len(queries) == 3
    attach = attach.replace("INSTALL httpfs;\nLOAD httpfs;\n", "").replace("https://HOST/FOLDER", str(hosted))
    assert str(hosted) in attach
    with duckdb.connect() as connection:
        connection.execute(attach)
        assert sum(len(connection.execute(text).fetchall()) for text in queries) > 0
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            connection.execute("DROP TABLE heads")


def test_tokens_are_no_markup(hosted: Path) -> None:
    _, rest = read_card(hosted)
    assert "javascript:alert" in rest
    for mark in ("<script", "](javascript", "|`", "`\\["):
        assert mark not in rest.replace(f"\\{mark}", ""), mark
    for table in re.findall(r"^\|.*(?:\n\|.*)*$", rest, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_no_path_of_this_machine_is_published(home: Home, hosted: Path, inputs: Path) -> None:
    private = str(inputs)
    assert private.encode() in (home.warehouse / "mine.duckdb").read_bytes()
    for path in hosted.iterdir():
        assert private.encode() not in path.read_bytes(), path.name
        if path.suffix == ".parquet":
            assert private not in str(parquet.read_table(path).to_pylist()), path.name
    study = parquet.read_table(hosted / "studies.parquet").to_pylist()[0]
    assert (study["model"], study["corpus"]) == ("llama", "book.txt")
    assert json.loads(study["provenance"])["settings"]["model"]["id"] == "llama"


def test_a_study_that_has_not_landed_is_refused(home: Home, tmp_path: Path) -> None:
    options = ("--dataset", "--study", "mine", "--study", "other")
    refused = attention_geometry("publish", tmp_path / "heads", *options, home=home.root)
    assert refused.complaint == "The study 'other' has not landed; run it first: attention-geometry run other"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="attention-geometry run embedded"):
        publish_dataset(Home(tmp_path / "empty"), tmp_path / "heads")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    for option in (("--study", "mine"), ("--license", "mit")):
        refused = attention_geometry("publish", tmp_path / "heads", *option, home=home.root)
        assert refused.complaint == "--study and --license are of a data set; add --dataset"


def test_a_full_disk_leaves_what_was_published(home: Home, hosted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(hosted, tmp_path / "heads")
    before = files(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, hard))
    try:
        with pytest.raises(UserError, match=r"heads cannot be written \(.*\); name another folder"):
            publish_dataset(home, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["heads"]
