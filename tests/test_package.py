"""The product as a whole: the built wheel runs the embedded study, kernels know no Dask."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from attention_geometry.packages import PACKAGES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_all_that_is_read_at_run_time(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert "dagster_project/studies.yaml" in names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "gallery/", "model_training/"))]


def hand_on_kernels(site: Path) -> None:
    """Give installed modules the kernels that were compiled of the same bytes: compiling takes half a minute."""
    for compiled in (path for package in PACKAGES for path in (ROOT / package).rglob("__pycache__/*.nb[ci]")):
        module = f"{compiled.name.split('.')[0]}.py"
        source, installed = (root / compiled.parents[1].relative_to(ROOT) / module for root in (ROOT, site))
        if installed.is_file() and installed.read_bytes() == source.read_bytes():
            (installed.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy2(compiled, installed.parent / "__pycache__")
            shutil.copystat(source, installed)


@pytest.mark.slow
@pytest.mark.timeout(900)  # kernels compile anew
def test_the_installed_wheel_runs_the_embedded_model_on_its_text_anywhere(wheel: Path, tmp_path: Path) -> None:
    """An environment of its own that holds the wheel alone; only third-party packages come from the running one."""
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = tmp_path / "env" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([*command, "--ignore-installed"], check=True)
    hand_on_kernels(site)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "storage").mkdir(parents=True)
    (elsewhere / "storage" / "__init__.py").write_text("mine = 1\n")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DAGSTER", "ATTENTION"))
    }
    program = tmp_path / "env" / "bin" / "attention-geometry"
    described = (
        "--model embedded --corpus embedded --context-length 48 --sequences 2 --no-twin --no-probe --no-every-query"
    )
    for arguments, said in ((["run", "--name", "small", *shlex.split(described)], "small"), (["studies"], "embedded")):
        finished = subprocess.run(
            [program, *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        assert said in finished.stdout
        assert "leaked" not in finished.stderr  # what DuckDB's binding says at the end of a process with PyTorch
    assert (elsewhere / "data" / "reports" / "small.html").stat().st_size > 100_000
    where = "import attention_geometry, storage; print(storage.__file__)"
    found = subprocess.run(
        [python, "-P", "-c", where], cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(site))
    refused = subprocess.run(
        [python, "-c", where], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    assert f"{elsewhere}/storage/__init__.py stands in the way of {site}/storage" in refused.stderr
    with (site / "sql" / "thresholds.py").open("a") as mended:
        mended.write("# mended\n")
    listing = "from attention_geometry.packages import find_overwritten; print(*find_overwritten())"
    listed = subprocess.run(
        [python, "-P", "-c", listing], cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    assert listed.stdout == "sql/thresholds.py\n"  # one who mends an installed module may go on
    (site / "geometry" / "__init__.py").write_text("shapes = 1\n")
    overwritten = subprocess.run([program, "doctor"], env=environment, capture_output=True, text=True, check=False)
    assert overwritten.returncode == 1
    assert f"{site}/geometry/__init__.py has been overwritten; install" in overwritten.stderr


@pytest.mark.parametrize("theirs", ["storage/__init__.py", "sql.py"])
def test_a_file_that_stands_in_the_way_of_a_package_is_named(theirs: str, tmp_path: Path) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("mine = 1\n")
    said = f"{tmp_path / theirs} stands in the way of {ROOT / theirs.removesuffix('.py').split('/')[0]}"
    importing = [sys.executable, "-c", "import attention_geometry"]
    refused = subprocess.run(importing, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.stderr.splitlines()[-1].startswith("ImportError: ")
    assert said in refused.stderr
    program = [Path(sys.executable).with_name("attention-geometry"), "doctor"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("attention-geometry: The package ")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    with_program = subprocess.run([program[0], "--version"], cwd=tmp_path, check=False, capture_output=True)
    assert with_program.returncode == 0, "what lies in the working directory is not in its way"


def test_every_pinned_version_has_digests_and_no_host() -> None:
    """If not: make hashes."""
    text = (ROOT / "hashes.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    known = re.findall(r"^(\S+)==(\S+) ((?:\\\n +--hash=sha256:[0-9a-f]{64} ?)+)$", text, re.MULTILINE)
    assert sorted((canonicalize_name(name), number) for name, number in pins) == sorted(
        (canonicalize_name(name), number) for name, number, _ in known
    )
    assert text.count("--hash=sha256:") == sum(digests.count("sha256:") for *_, digests in known)
    assert "://" not in text


def test_what_builds_is_pinned() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [pin for pin in declared["build-system"]["requires"] if "==" not in pin] == []
