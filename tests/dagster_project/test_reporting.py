"""Reports, index, comparisons, pictures and tables as the command line writes them."""

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from dagster_project.assets.report import LONGEST, write_comparison
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.connection import locate_database
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.recorded import write_studies
from tests.reports.pages import Page

SETTINGS = {"model": "embedded", "corpus": "embedded", "context_length": 24, "sequences": 4, "queries": [5, 11, 23]}


def targets(page: Path) -> set[Path]:
    """The other files that a page links, followed as a browser does."""
    links = [attributes["href"] for attributes, _ in Page(page).find("a") if not attributes["href"].startswith("#")]
    return {(page.parent / unquote(link)).resolve() for link in links}


@pytest.fixture(scope="module")
def two(mine: Path, landed_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the finished study ``mine`` and the landed study ``small`` of three queries."""
    home = Home(Path(shutil.copytree(mine, tmp_path_factory.mktemp("two") / "home")))
    recorded = yaml.safe_load(home.studies_file.read_text(encoding="utf-8"))["studies"]
    write_studies(home.root, **recorded, small=SETTINGS)
    shutil.copy(locate_database(landed_root / "warehouse", "small"), home.warehouse)
    shutil.copy(home.report("mine"), home.report("small"))
    return home.root


def test_queries_that_are_no_numbers_or_beyond_the_context_are_refused(tmp_path: Path) -> None:
    new = ("run", "--name", "other", "--model", "synthetic", "--context-length", 32, "--sequences", 2)
    said = {given: f"--queries {given} is not a list of positions" for given in ("", "1;2", "1,,2")}
    for given, told in (
        said | {"15,32": "field 'queries': positions should be below context_length, which is 32"}
    ).items():
        assert told in attention_geometry(*new, "--queries", given, home=tmp_path).complaint


@pytest.mark.slow
def test_a_comparison_is_written_linked_and_links(two: Path) -> None:
    done = attention_geometry("compare", "mine", "small", home=two)
    assert done.code == 0, done.errors
    comparison = Path(done.text.strip())
    assert comparison == two / "comparisons" / "mine+small.html"
    assert comparison in targets(two / "index.html")
    assert targets(comparison) == {two / "index.html", two / "reports" / "mine.html", two / "reports" / "small.html"}
    assert "mine, small" in (two / "index.html").read_text(encoding="utf-8")
    page = comparison.read_text(encoding="utf-8")
    assert all(f'<section id="{key}"' in page for key in ("separation", "trends", "layers", "heads", "changes"))
    assert 'id="onsets"' not in page, "studies along no axis have onsets"
    assert re.search(r"comparisons\s.*mine\+small", attention_geometry("doctor", home=two).text)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("mine", "mine"), "two studies or more"),
        (("mine", "smal"), "There is no study 'smal'; did you mean 'small'?"),
        (("mine", "embedded"), "holds nothing of the study 'embedded'; run it first: attention-geometry run embedded"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(two: Path, names: tuple[str, ...], told: str) -> None:
    before = sorted((two / "comparisons").glob("*"))
    assert told in attention_geometry("compare", *names, home=two).complaint
    assert sorted((two / "comparisons").glob("*")) == before


def test_names_too_long_together_are_refused(tmp_path: Path) -> None:
    names = [letter * 60 for letter in "abcd"]
    studies = {name: {"model": "embedded", "corpus": "embedded", "context_length": 8, "sequences": 1} for name in names}
    home = Home(tmp_path)
    home.studies_file.write_text(yaml.safe_dump({"studies": studies}))
    assert len(home.comparison(names).name) > LONGEST
    with pytest.raises(UserError, match="too long for one file name"):
        write_comparison(home, names)


@pytest.mark.long
def test_pictures_and_tables_come_with_a_report(two: Path, tmp_path: Path) -> None:
    pictures, tables = tmp_path / "deep" / "pictures", tmp_path / "tables"
    done = attention_geometry("report", "small", "--images", pictures, "--tables", tables, home=two)
    assert done.code == 0, done.errors
    report, told = done.text.splitlines()
    assert report == f"{two}/reports/small.html"
    files = [*pictures.iterdir(), *tables.iterdir()]
    assert told.startswith(f"{len(files)} files in ")
    assert {"context-metrics.csv", "explorer.parquet"} <= {path.name for path in tables.iterdir()}
    assert {path.suffix for path in pictures.iterdir()} == {".svg", ".pdf", ".png"}
    (tmp_path / "file").touch()
    refused = attention_geometry("report", "small", "--tables", tmp_path / "file", home=two).complaint
    assert re.search(rf"{tmp_path}/file/.* cannot be written", refused)
