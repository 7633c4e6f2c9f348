"""That tests run under other conditions."""

import os
import sys
from pathlib import Path

import pytest

from tests import conditions
from tests.conditions import CONDITIONS

PROBE = """
import os, tempfile, time
from pathlib import Path

def test_cores():
    assert len(os.sched_getaffinity(0)) > 1

def test_scratch():
    assert not tempfile.gettempdir().startswith("/dev/shm")

def test_zone():
    assert time.timezone == 0

def test_variables():
    assert "OPENBLAS_CORETYPE" not in os.environ

def test_place():
    assert " " not in os.getcwd()

def test_user():
    assert os.geteuid() != 65534
"""
ELSEWHERE = "one core, TMPDIR in memory, another locale and time zone, a path with spaces"
SEEN = ("test_cores", "test_scratch", "test_zone", "test_place")
"""The tests that fail there."""


@pytest.fixture
def probe(tmp_path: Path) -> str:
    (tmp_path / "test_probe.py").write_text(PROBE)
    return str(tmp_path / "test_probe.py")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="cores cannot be taken away")
def test_a_condition_is_one(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in {"TZ"}.union(*(condition.variables for condition in CONDITIONS.values())):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    outcome = conditions.run_tests(CONDITIONS[ELSEWHERE], ["-c", os.devnull, probe], marks="")
    assert [failed.rpartition("::")[2] for failed in outcome.failed] == list(SEEN)
    assert outcome.passed == PROBE.count("def test") - len(SEEN)
