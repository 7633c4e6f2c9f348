"""The benchmarks run, say what they measured, and can be saved; no test here asserts a speed."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks import __main__ as command
from benchmarks import full_size, heads, large, measure, run, selection
from benchmarks.measure import Benchmark, Result
from geometry import selection_profile

KERNELS = ("counts", "profile", "kappas", "scale_free")
"""Figures of the benchmark ``selection.product``."""

LONG = ("landing",)
"""Benchmarks of whole studies or processes, which take ten seconds or more however small these are."""


@pytest.mark.one_case
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "benchmark",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.long if each.name in LONG else ())
        for each in command.BENCHMARKS
        if each is not run.BENCHMARK
    ],
)
def test_every_benchmark_gives_positive_finite_ratios(benchmark: Benchmark) -> None:
    if missing := benchmark.missing():
        pytest.skip(missing)
    results = benchmark.small()
    assert results
    for result in results:
        assert math.isfinite(result.ratio)
        assert 0 < result.lowest <= result.ratio <= result.highest
        assert result.what_median > 0
        assert result.against_median > 0
        assert result.repeats > 0
        assert result.sizes
        assert Result(**json.loads(json.dumps(asdict(result)))) == result


@pytest.mark.slow
@pytest.mark.one_case
def test_the_table_of_large_models_scales_what_is_measured() -> None:
    rows = large.build_table(n=64, long=64, repeats=1).splitlines()
    assert len(rows) == 2 + len(large.STUDIES)
    for row, study in zip(rows[2:], large.STUDIES, strict=True):
        name, multiple, seconds, shared, *_ = (cell.strip().replace(",", "") for cell in row.strip("|").split("|"))
        assert name == study.replace(",", "")
        assert float(multiple) > 0
        assert float(seconds) == pytest.approx(large.WORKERS * float(shared), abs=large.WORKERS)
    assert next(iter(large.STUDIES.values()))["numbers"] == 100 * 1024 * (128**2 + 256**2 + 512**2 + 1024**2)


def test_contenders_take_turns_after_one_unmeasured_run_each() -> None:
    runs: list[str] = []
    seconds = measure.alternate(lambda: runs.append("a"), lambda: runs.append("b"), repeats=3)
    assert "".join(runs) == "ab" + "ab" + "ba" + "ab"
    assert seconds.shape == (3, 2)
    assert (seconds >= 0).all()


def test_a_ratio_is_the_median_over_rounds_in_the_direction_of_its_kind() -> None:
    ours, theirs = ("ours", np.array([1.0, 2.0, 3.0])), ("theirs", np.array([2.0, 2.0, 2.0]))
    cost = measure.compare("x", "cost", ours, theirs, sizes={"n": 1}, target=1.0)
    assert (cost.lowest, cost.ratio, cost.highest, cost.met) == (0.5, 1.0, 1.5, True)
    speed = measure.compare("x", "speed", ours, theirs, sizes={"n": 1}, target=1.1)
    assert (speed.lowest, speed.ratio, speed.highest, speed.met) == (2 / 3, 1.0, 2.0, False)
    assert measure.compare("x", "speed", ours, theirs, sizes={}).met is None


@pytest.mark.one_case
@pytest.mark.parametrize("way", [selection.count_vectorised, selection.count_in_loop])
def test_the_contenders_in_pytorch_compute_what_ours_does(way: Callable[..., selection.Counts]) -> None:
    weights, values = heads.draw_head(64, 8)
    k_in, k_out, r_min, r_max = (column.numpy() for column in way(torch.from_numpy(weights), torch.from_numpy(values)))
    profile = selection_profile(weights, values)
    np.testing.assert_allclose(r_min, profile.r_min, rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(r_max, profile.r_max, rtol=1e-2, atol=1e-4)
    assert np.mean(k_in == profile.k_in) > 0.8
    assert np.mean(k_out == profile.k_out) > 0.8


def test_the_command_prints_a_table_and_saves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small, out = selection.BENCHMARKS[0].small, tmp_path / "made" / "figures.json"
    monkeypatch.setattr(command, "BENCHMARKS", (Benchmark("selection.product", full=small, small=small),))
    assert command.main(["--only", "selection", "--out", str(out)]) == 0
    assert "selection.counts" in capsys.readouterr().out
    saved = json.loads(out.read_text())
    figures = [f"selection.{name}{of}" for of in ("", ".saturated") for name in KERNELS]
    assert [result["name"] for result in saved["results"]] == figures
    assert saved["results"][0]["target"] == 0.8
    assert saved["machine"]["cores"] >= 1
    assert set(saved["machine"]["versions"]) == {"python", *measure.LIBRARIES}
    assert str(Path.home()) not in out.read_text()
    assert str(tmp_path) not in out.read_text()


@pytest.mark.slow
def test_a_model_of_the_paper_runs_whole_if_it_is_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--divide", "32", "--layers", "2", "--sequences", "2", "--context-length", "64"]
    assert full_size.main(["mistral-7b", *sizes]) == 0
    printed = capsys.readouterr().out
    assert "full_size.mistral-7b" in printed
    assert "divided_by 32" in printed
    assert "peak memory" in printed


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "parameters"), [("llama-2-7b", 6_738_415_616), ("mistral-7b", 7_241_732_096), ("gemma-7b", 8_537_680_896)]
)
def test_the_paper_s_models_have_as_many_parameters_as_the_published_ones(name: str, parameters: int) -> None:
    config, settings = full_size.MODELS[name]
    with torch.device("meta"):
        assert AutoModelForCausalLM.from_config(config(**settings)).num_parameters() == parameters
