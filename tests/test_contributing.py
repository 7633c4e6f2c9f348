"""The walks of ``docs/contributing.md`` for a metric and a claim, in a copy of the checkout; files of pages exist."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sql
from dagster_project.command.guide import render_assets_section

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("attention_geometry", "dagster_project", "extract", "geometry", "reports", "sql", "storage")

SUM = "out.cos_sink[row] + out.cos_last[row]"
COMMENT = "sum of the cosines with sink and last token"
FIELD = f"""    cos_sum: F64 = _field(_cosine, "{COMMENT}", low=-2.0, high=2.0,
        missing="if one of the cosines is missing")
"""
LINE = "    out.a_0[row] = head.alpha[0] * lengths[0] if row >= head.sink else np.nan\n"
CLAIM = """CLAIMS = (
    Claim("valleys_hold", "Table 2", "Δ > 0 in valleys", (Part("margin_positive_in_valleys", ">"),),
        "valleys hold", "valleys do not hold", "regimes", null="margins of either sign"),
"""
STEPS = {
    "geometry/quantities.py": ("    a_0: F64 = _field(", FIELD + "    a_0: F64 = _field("),
    "geometry/selection/host.py": (LINE, f"{LINE}    out.cos_sum[row] = {SUM}\n"),
    "dagster_project/analysis/metrics.py": ("METRICS_VERSION = ", "METRICS_VERSION = 1000 + "),
    "dagster_project/analysis/claims/patterns.py": ("CLAIMS = (\n", CLAIM),
}
"""What a metric and a claim need: in each file, a text and what it becomes."""

FOUND = """
import sql, storage
with storage.connect("data") as connection:
    wrong, rows = connection.execute(
        "SELECT count(*) FILTER (abs(cos_sum - cos_sink - cos_last) > 1e-6), count(cos_sum) FROM selection"
    ).fetchone()
    (comment,) = connection.execute(
        "SELECT DISTINCT comment FROM duckdb_columns() WHERE table_name = 'selection' AND column_name = 'cos_sum'"
    ).fetchone()
    (sentence,) = connection.execute("SELECT sentence FROM claims WHERE claim = 'valleys_hold'").fetchone()
checks = [name for name in sql.list_names("checks") if "cos_sum" in sql.read_statement("checks", name).text]
print(wrong, rows > 0, bool(checks), comment, sentence, sep="|")
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages with the kernels compiled so far, as a contributor has them."""
    for package in PACKAGES:
        shutil.copytree(CHECKOUT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc*", "*.tmp*"))
    shutil.copy(CHECKOUT / "studies.yaml", tmp_path)
    return tmp_path


def in_copy(copy: Path, *arguments: str) -> str:
    """What Python prints that imports the packages of the copy."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": "", "NUMBA_OPT": "0"},  # what is new compiles in half the time
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_walks_fit_the_files() -> None:
    for name, (old, _) in STEPS.items():
        assert (CHECKOUT / name).read_text(encoding="utf-8").count(old) == 1, name
    of_claim = [name for name in STEPS if "/claims/" in name]
    assert len(of_claim) == 1
    assert len(STEPS) - len(of_claim) <= 4


def test_a_study_has_no_more_tables_than_it_had() -> None:
    """What a view can state, or columns of a table of the same grain, is no table of its own."""
    assert len(sql.list_names("schema")) <= 50


@pytest.mark.long
def test_a_metric_and_a_claim_that_are_declared_are_in_stores_tables_and_checks(copy: Path) -> None:
    for name, (old, new) in STEPS.items():
        text = (copy / name).read_text(encoding="utf-8")
        (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    command = "import sys; from dagster_project.command.cli import main; sys.argv[0] = 'attention-geometry'; main()"
    study = "run --name toy --model embedded --corpus embedded --context-length 24 --sequences 2 --home data"
    in_copy(copy, "-c", command, *study.split())
    assert in_copy(copy, "-c", FOUND) == (
        f"0|True|True|{COMMENT}; NULL if one of the cosines is missing|"
        "Whether valleys hold cannot be tested: 2 sequences measured, 4 are needed.\n"
    )


def test_the_page_on_the_architecture_lists_the_assets() -> None:
    page = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page.endswith(render_assets_section()), (
        "run the command that the page names, and put what it prints at the end"
    )


def test_the_files_that_the_pages_for_contributors_name_exist() -> None:
    for page in ("architecture", "contributing"):
        text = (CHECKOUT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        named = [part for part in text.split("`")[1::2] if "/" in part and part.endswith(".py")]
        missing = [name for name in named if not any((CHECKOUT / at / name).exists() for at in ("", "dagster_project"))]
        assert named
        assert missing == []
