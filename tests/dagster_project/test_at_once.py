"""Commands that start at the same time on one data root: each works, or says in a line what it waits for."""

import subprocess
from pathlib import Path

import pytest

from tests.dagster_project.driver import PROGRAM, attention_geometry, environment
from tests.dagster_project.recorded import TINY, write_studies


@pytest.mark.long  # pairs of runs in processes of their own
def test_two_new_studies_are_run_at_once_on_a_fresh_data_root(tmp_path: Path) -> None:
    write_studies(tmp_path, one=TINY, two=TINY)
    running = [
        subprocess.Popen(
            [PROGRAM, "run", name, "--home", tmp_path],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=600)[0] for process in running]
    assert all("Traceback" not in text for text in said), said
    assert [process.returncode for process in running] == [0, 0], said
    landed = attention_geometry("sql", "SELECT count(*) AS c FROM studies", "--format", "csv", home=tmp_path)
    assert landed.text == '"c"\n2\n'
