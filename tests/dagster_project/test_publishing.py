"""Publishing replaces what was published and nothing else, wherever it is stopped; no link or pipe is a page.

A data set is read by others' tools from any host, says what it holds, and nothing of the machine it is from.
"""

import errno
import json
import os
import re
import resource
import shutil
import stat
from pathlib import Path

import duckdb
import pytest
from pyarrow import parquet

import sql
from dagster_project.assets.publishing import MARKER, publish, publish_dataset
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.dataset import CARD, DATABASE, TABLES
from tests.dagster_project.driver import attention_geometry, files
from tests.storage.leftovers import ended, unfinished

PAGES = {"index.html", "reports/mine.html"}


@pytest.fixture(scope="module")
def published(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data root of a page and a database, and the site that was published from it; only read."""
    folder = tmp_path_factory.mktemp("published")
    for part in ("reports", "warehouse"):
        shutil.copytree(mine / part, folder / "home" / part)
    publish(Home(folder / "home"), folder / "site")
    return folder


@pytest.fixture
def home(published: Path, tmp_path: Path) -> Home:
    """A data root with a page and a database."""
    return Home(shutil.copytree(published / "home", tmp_path / "home"))


@pytest.fixture
def site(published: Path, tmp_path: Path) -> Path:
    """A published folder, next to nothing else."""
    return shutil.copytree(published / "site", tmp_path / "public" / "site")


def pages(site: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(site).items() if name != MARKER and content}


def test_it_is_published_again_and_again(home: Home, site: Path) -> None:
    assert pages(site).keys() == PAGES
    (home.reports / "mine.html").write_text("<p>another</p>", encoding="utf-8")
    said = attention_geometry("publish", site, home=home.root).text
    assert said == f"2 files in {site}\n"
    assert pages(site)["reports/mine.html"] == b"<p>another</p>"
    assert json.loads((site / MARKER).read_bytes())["files"].keys() == PAGES
    assert [path.name for path in site.parent.iterdir()] == ["site"]
    links = re.findall(r'href="([^"#]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert "reports/mine.html" in links
    assert all((site / link).exists() for link in links)


def test_a_folder_with_another_file_or_link_is_refused(home: Home, site: Path, tmp_path: Path) -> None:
    name = "reports/deep/x.html"
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text("years of work", encoding="utf-8")
    before = files(site)
    for option in ((), ("--overwrite",)):
        refused = attention_geometry("publish", site, *option, home=home.root)
        assert f"{site} holds '{name}', which was not published" in refused.complaint
    assert files(site) == before
    (tmp_path / "theirs").mkdir()
    (site / "comparisons").symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match="holds 'comparisons', which was not published"):
        publish(home, site)


@pytest.mark.parametrize("content", ["", '{"files": 3}'])
def test_a_marker_that_lists_nothing_is_refused(home: Home, site: Path, content: str) -> None:
    (site / MARKER).write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"published\.json does not list what was published there"):
        publish(home, site)


def test_a_page_changed_since_is_replaced_only_if_asked(home: Home, site: Path) -> None:
    (site / "index.html").write_text("with a remark of mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"index\.html was changed after it was published; add --overwrite"):
        publish(home, site)
    assert (site / "index.html").read_text(encoding="utf-8") == "with a remark of mine"
    publish(home, site, overwrite=True)
    assert b"remark" not in pages(site)["index.html"]


def test_the_site_comes_back_if_it_cannot_be_replaced(home: Home, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = files(site), Path.rename

    def fail(path: Path, target: Path) -> Path:
        if Path(target) == site and path.suffix == ".partial":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(UserError, match="Input/output error"):
        publish(home, site)
    assert files(site) == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_what_a_killed_process_left_is_recovered(home: Home, site: Path) -> None:
    before, process = pages(site), ended()
    old = site.with_name(unfinished("site", process, "replaced"))
    site.rename(old)
    shutil.copytree(old / "reports", site.with_name(unfinished("site", process)))
    (home.reports / "mine.html").unlink()
    os.mkfifo(home.reports / "mine.html")
    with pytest.raises(UserError, match=r"mine\.html cannot be published \(it is not a regular file\)"):
        publish(home, site)
    assert pages(site) == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


@pytest.mark.parametrize("folder", [False, True])
def test_links_out_of_the_data_root_are_not_followed(home: Home, tmp_path: Path, *, folder: bool) -> None:
    (tmp_path / "private").mkdir()
    secret = tmp_path / "private" / "secret.html"
    secret.write_text("secret", encoding="utf-8")
    secret.chmod(0o600)
    if folder:
        home.comparisons.symlink_to(secret.parent)
    else:
        (home.reports / "secret.html").symlink_to(secret)
    with pytest.raises(UserError, match="link"):
        publish(home, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


HOSTILE = "|`[x](javascript:alert(1))<script>alert(1)</script>\n---\n"


@pytest.fixture(scope="module")
def landed(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root with the study ``mine``, whose tokens are hostile; its model and text are files of this machine."""
    root = tmp_path_factory.mktemp("hosted")
    shutil.copytree(mine / "warehouse", root / "warehouse")
    with duckdb.connect(root / "warehouse" / "mine.duckdb") as connection:
        connection.execute("UPDATE tokens SET token = ?", [HOSTILE])
    return Home(root)


@pytest.fixture(scope="module")
def hosted(landed: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its data set; only read."""
    folder = tmp_path_factory.mktemp("public") / "heads"
    said = attention_geometry("publish", folder, "--dataset", "--license", "cc-by-4.0", home=landed.root).text
    listed = [re.split(r"  ", line)[0] for line in said.splitlines()]
    assert listed == [*sorted(path.name for path in folder.iterdir() if path.name != MARKER), listed[-1]]
    assert re.fullmatch(rf"\d+ files in {folder}", listed[-1])
    return folder


def read_card(folder: Path) -> str:
    """A card without its metadata."""
    return (folder / CARD).read_text(encoding="utf-8").split("---\n", 2)[2]


def test_the_database_and_the_parquet_files_hold_what_the_warehouse_does(landed: Home, hosted: Path) -> None:
    def summarise(relation: str) -> object:
        return connection.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {relation} AS t").fetchall()

    with duckdb.connect(hosted / DATABASE, read_only=True) as connection:
        connection.execute(f"ATTACH '{landed.warehouse / 'mine.duckdb'}' AS landed (READ_ONLY)")
        there = {path.stem for path in hosted.glob("*.parquet")}
        assert there == {name for name in TABLES if summarise(f"landed.{name}") != [(0, None)]}
        for name in there:
            assert summarise(name) == summarise(f"'{hosted / name}.parquet'"), name
        for name in there - {"studies", *sql.list_names("views")}:
            assert summarise(name) == summarise(f"landed.{name}"), name


def test_the_queries_of_the_card_run_as_they_stand(hosted: Path) -> None:
    attach, *queries = re.findall(r"```sql\n(.*?)```", read_card(hosted), re.DOTALL)
    assert len(queries) == 3
    attach = attach.replace("INSTALL httpfs;\nLOAD httpfs;\n", "").replace("https://HOST/FOLDER", str(hosted))
    assert str(hosted) in attach
    with duckdb.connect() as connection:
        connection.execute(attach)
        assert sum(len(connection.execute(text).fetchall()) for text in queries) > 0
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            connection.execute("DROP TABLE heads")


def test_tokens_are_no_markup(hosted: Path) -> None:
    rest = read_card(hosted)
    assert "javascript:alert" in rest
    for mark in ("<script", "](javascript", "|`", "`\\["):
        assert mark not in rest.replace(f"\\{mark}", ""), mark
    for table in re.findall(r"^\|.*(?:\n\|.*)*$", rest, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_no_path_of_this_machine_is_published(landed: Home, hosted: Path, inputs: Path) -> None:
    private = str(inputs)
    assert private.encode() in (landed.warehouse / "mine.duckdb").read_bytes()
    for path in hosted.iterdir():
        assert private.encode() not in path.read_bytes(), path.name
        if path.suffix == ".parquet":
            assert private not in str(parquet.read_table(path).to_pylist()), path.name
    study = parquet.read_table(hosted / "studies.parquet").to_pylist()[0]
    assert (study["model"], study["corpus"]) == ("llama", "book.txt")
    assert json.loads(study["provenance"])["settings"]["model"]["id"] == "llama"


def test_a_study_that_has_not_landed_is_refused(landed: Home, tmp_path: Path) -> None:
    options = ("--dataset", "--study", "mine", "--study", "other")
    refused = attention_geometry("publish", tmp_path / "heads", *options, home=landed.root)
    assert refused.complaint == "The study 'other' has not landed; run it first: attention-geometry run other"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="attention-geometry run embedded"):
        publish_dataset(Home(tmp_path / "empty"), tmp_path / "heads")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    for option in (("--study", "mine"), ("--license", "mit")):
        refused = attention_geometry("publish", tmp_path / "heads", *option, home=landed.root)
        assert refused.complaint == "--study and --license are of a data set; add --dataset"


def test_a_full_disk_leaves_what_was_published(landed: Home, hosted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(hosted, tmp_path / "heads")
    before = files(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, hard))
    try:
        with pytest.raises(UserError, match=r"heads cannot be written \(.*\); name another folder"):
            publish_dataset(landed, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["heads"]
