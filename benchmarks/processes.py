"""The small tables of a study in several processes, against the same in this process, one after the other.

Holds the benchmark ``processes``: few and many selections, in seconds, from which
``dagster_project.assets.processes.FEW_SELECTIONS`` follows.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.measure import Benchmark, Contender, Result, alternate, compare
from benchmarks.metrics import NAME, write_tensors
from dagster_project.assets import processes
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS
from dagster_project.assets.metrics import make_metrics
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract.settings import SYNTHETIC


def describe_study(sizes: Mapping[str, int], queries: Sequence[int]) -> Study:
    """The settings of the artificial study."""
    shape = {"layers": "layer", "heads": "head", "kv_heads": "kv_head", "head_dim": "head_dim"}
    return Study.model_validate(
        {
            "model": SYNTHETIC,
            "synthetic": {name: sizes[axis] for name, axis in shape.items()},
            "context_length": sizes["key"],
            "sequences": sizes["sequence"],
            "queries": list(queries),
        }
    )


def compare_processes(*, sequences: Sequence[int], layers: int, keys: int, repeats: int) -> list[Result]:
    """Studies of few and of many sequences."""
    return [_compare_study(number, layers, keys, repeats) for number in sequences]


def _compare_study(sequences: int, layers: int, keys: int, repeats: int) -> Result:
    """All small tables of one study, in as many processes as there are cores, and in none but this one."""
    sizes = {"sequence": sequences, "query": 1, "layer": layers, "head": 4, "kv_head": 2, "key": keys, "head_dim": 32}
    with TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.prepare()
        write_tensors(home, sizes, [keys - 1])
        work = Work(home, NAME, describe_study(sizes, [keys - 1]), ASSETS)
        make_metrics(work)
        selections = work.sources.metrics.count_selections()
        seconds = alternate(_make_in(work, 2), _make_in(work, 1), repeats=repeats)
    return compare(
        f"processes_{selections}",
        "cost",
        (f"all small tables of {selections:,} selections, two processes", seconds[:, 0]),
        ("this process", seconds[:, 1]),
        sizes=sizes,
    )


def _make_in(work: Work, number: int) -> Contender:
    """Make all small tables anew in so many processes; one is this one."""
    names = [asset.name for asset in SUMMARIES]

    def make() -> None:
        with patch.object(processes, "is_worthwhile", return_value=number > 1):
            list(processes.make_each(work, SUMMARIES, names))
        processes.stop_processes()  # so that each time includes their start, if not the import of libraries

    return make


BENCHMARK = Benchmark(
    "processes",
    full=partial(compare_processes, sequences=(6, 12, 24, 48), layers=24, keys=512, repeats=3),
    small=partial(compare_processes, sequences=(2,), layers=1, keys=16, repeats=1),
)
