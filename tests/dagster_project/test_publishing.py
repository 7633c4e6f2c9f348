"""Publishing replaces what was published and nothing else, wherever it is stopped; no link or pipe is a page."""

import errno
import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from dagster_project.assets.publishing import MARKER, publish
from dagster_project.study.home import Home
from storage.errors import UserError
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
