"""Duration of the first run of a study, with and without compiled kernels.

Both are compared with the import of PyTorch, Dagster and Altair in a separate process, and with a plain forward pass of
the study's sequences.
"""

from collections.abc import Sequence
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.measure import Benchmark, Result, alternate, compare
from benchmarks.startup import PROGRAM, STUDY, run_python

IMPORTS = "import torch, dagster, altair"
FORWARD = """
import torch
from importlib.resources import files
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(files("extract.embedded") / "model", dtype=torch.float32)
with torch.inference_mode():
    model(input_ids=torch.arange({tokens}).remainder(model.config.vocab_size).reshape({sequences}, -1))
"""


def measure_first_run(study: Sequence[str], sequences: int, tokens: int, repeats: int) -> list[Result]:
    """Duration of a study in an empty data root, compared with imports and with a forward pass.

    Parameters
    ----------
    study
        The arguments of ``attention-geometry run``.
    sequences, tokens
        Sequences of the study, and the tokens of one.
    repeats
        Rounds.

    Raises
    ------
    subprocess.CalledProcessError
        If a process fails.
    """
    with TemporaryDirectory() as compiled:
        forward = FORWARD.format(sequences=sequences, tokens=sequences * tokens)
        seconds = alternate(
            partial(_run_cold, study),
            partial(_run, study, compiled),
            partial(run_python, "-c", IMPORTS),
            partial(run_python, "-c", forward),
            repeats=repeats,
        )
    sizes, columns = {"sequence": sequences, "token": tokens}, seconds.T
    shown = f"attention-geometry run {' '.join(study)}"
    contenders = {"cold": f"{shown}, nothing compiled", "warm": f"{shown}, kernels compiled before"}
    beside = {"imports": f"python -c '{IMPORTS}'", "forward": "a process that runs the plain forward pass of the study"}
    return [
        compare(f"first_run.{name}_{other}", "cost", (what, columns[row]), (against, columns[column]), sizes=sizes)
        for row, (name, what) in enumerate(contenders.items())
        for column, (other, against) in enumerate(beside.items(), start=2)
    ]


def _run_cold(study: Sequence[str]) -> None:
    with TemporaryDirectory() as compiled:
        _run(study, compiled)


def _run(study: Sequence[str], compiled: str) -> None:
    """Run a study in an empty data root, with the compiled kernels cached in the folder ``compiled``."""
    with TemporaryDirectory() as home:
        run_python(*PROGRAM, "run", *study, ATTENTION_GEOMETRY_HOME=home, NUMBA_CACHE_DIR=compiled)


BENCHMARK = Benchmark(
    "first_run",
    full=lambda: measure_first_run(("embedded",), sequences=8, tokens=512, repeats=3),
    small=lambda: measure_first_run(STUDY, sequences=2, tokens=32, repeats=1),
)
