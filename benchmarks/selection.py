"""The selection profile against one matrix product, against PyTorch, against itself at other sizes and on two threads.

Holds the benchmarks ``selection.*``. All of them use random heads with normal logits and value states. Contenders on
one thread are measured in process time, two threads against one in wall-clock time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import process_time

import dask.array as da
import numpy as np
import torch
from dask.base import compute
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import pytorch
from benchmarks.measure import Benchmark, Contender, Result, alternate, compare
from geometry import SelectionCounts, concentration, list_derived, selection_counts, selection_profile
from geometry.lazy.selection import build_selection_arrays

F32 = NDArray[np.float32]

COUNTS = "selection_counts of one head (counts and radii), one thread"
PROFILE = "selection_profile of one head (everything, one κ), one thread"


def draw(*shape: int, head_dim: int, spread: float = 2) -> tuple[F32, F32]:
    """Weights of ``shape`` (..., n), softmax of normal logits, and value states (..., n, head_dim).

    spread: standard deviation of the logits.
    """
    rng = np.random.default_rng(0)
    weights = np.exp(spread * rng.standard_normal(shape, dtype=np.float32))
    return weights / weights.sum(-1, keepdims=True), rng.standard_normal((*shape, head_dim), dtype=np.float32)


@contextmanager
def limit_threads() -> Iterator[None]:
    """Limit BLAS, OpenMP and PyTorch to one thread inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def make_product(values: F32) -> Contender:
    """One float32 matrix product n x d x n of ``values`` (n, d) with their copy, into preallocated memory."""
    left, right, out = values.copy(), np.ascontiguousarray(values.T), np.empty((len(values),) * 2, np.float32)
    return lambda: np.matmul(left, right, out=out)


def compare_with_product(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """One head against one float32 matrix product n x d x n."""
    weights, values = draw(n, head_dim=head_dim)
    saturated, _ = draw(n, head_dim=head_dim, spread=20)
    with limit_threads():
        seconds = alternate(
            lambda: selection_counts(weights, values),
            lambda: selection_profile(weights, values),
            lambda: selection_profile(saturated, values),
            make_product(values),
            repeats=repeats,
            clock=process_time,
        )
    product_of = ("one float32 matrix product n x d x n, one thread", seconds[:, 3])
    of_saturated = ("the same of a saturated head, weights of which underflow", seconds[:, 2])
    sizes = {"n": n, "head_dim": head_dim}
    return [
        compare("selection.counts", "cost", (COUNTS, seconds[:, 0]), product_of, sizes=sizes, target=1.6),
        compare("selection.profile", "cost", (PROFILE, seconds[:, 1]), product_of, sizes=sizes, target=4.0),
        compare("selection.saturated", "cost", of_saturated, product_of, sizes=sizes, target=4.0),
    ]


def compare_extras(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """Additions to a profile at little cost: the metrics derived from its counts, and the concentration of the head."""
    weights, values = draw(n, head_dim=head_dim)
    counts = selection_counts(weights, values)
    with limit_threads():
        seconds = alternate(
            lambda: [getattr(counts, name) for name in list_derived(SelectionCounts)],
            lambda: concentration(weights, values),
            make_product(values),
            repeats=repeats,
            clock=process_time,
        )
    product_of = ("one float32 matrix product n x d x n, one thread", seconds[:, 2])
    contenders = (
        (
            "selection.derived",
            "Precision, Recall, F, specificity and Precision's excess from the counts",
            seconds[:, 0],
        ),
        ("selection.concentration", "concentration of one head's weights and contributions, one thread", seconds[:, 1]),
    )
    sizes = {"n": n, "head_dim": head_dim}
    return [
        compare(name, "cost", (what, ours), product_of, sizes=sizes, target=0.25) for name, what, ours in contenders
    ]


def compare_with_pytorch(*, n: int, head_dim: int, repeats: int) -> list[Result]:
    """One head against PyTorch, vectorised and in a loop; the speed of a bare matrix product is noted as well."""
    weights, values = draw(n, head_dim=head_dim)
    tensors = torch.from_numpy(weights), torch.from_numpy(values)
    with limit_threads():
        seconds = alternate(
            lambda: selection_counts(weights, values),
            lambda: pytorch.count_vectorised(*tensors),
            lambda: pytorch.count_in_loop(*tensors),
            make_product(values),
            repeats=repeats,
            clock=process_time,
        )
    ours, sizes = (COUNTS, seconds[:, 0]), {"n": n, "head_dim": head_dim}
    contenders = (
        (
            "selection.vectorised",
            "counts and radii in PyTorch float32, cdist and masks, one thread",
            seconds[:, 1],
            5.0,
        ),
        ("selection.loop", "counts and radii in PyTorch float32, a loop over N, one thread", seconds[:, 2], 20.0),
    )
    return [
        compare(
            name, "speed", ours, (what, theirs), sizes=sizes, target=target, note=_format_limit(theirs / seconds[:, 3])
        )
        for name, what, theirs, target in contenders
    ]


def _format_limit(ratios: NDArray[np.float64]) -> str:
    """Note on the speed that no exact count by a matrix product can exceed."""
    return f"the bare matrix product alone is {np.median(ratios):.1f} times as fast"


def measure_growth(*, lengths: Sequence[int], head_dim: int, repeats: int) -> list[Result]:
    """The exponent of n in the time of one head: the slope of a line through log time over log n, round by round."""
    heads = [draw(n, head_dim=head_dim) for n in lengths]
    with limit_threads():
        seconds = alternate(*(partial(selection_profile, *head) for head in heads), repeats=repeats, clock=process_time)
    exponents = np.polynomial.polynomial.polyfit(np.log(lengths), np.log(seconds).T, 1)[1]
    shortest, longest = lengths[0], lengths[-1]
    return [
        Result(
            name="selection.growth",
            kind="exponent",
            what=f"selection_profile of one head at n = {longest}",
            against=f"the same at n = {shortest} (exponent fitted through n = {', '.join(map(str, lengths))})",
            ratio=float(np.median(exponents)),
            lowest=float(exponents.min()),
            highest=float(exponents.max()),
            what_median=float(np.median(seconds[:, -1])),
            against_median=float(np.median(seconds[:, 0])),
            unit="s",
            target=2.1,
            repeats=repeats,
            sizes={"shortest": shortest, "longest": longest, "head_dim": head_dim},
        )
    ]


def measure_threads(*, layers: int, heads: int, n: int, head_dim: int, repeats: int) -> list[Result]:
    """All heads of one sequence through Dask's threads, two against one, with one BLAS thread each."""
    weights, values = draw(1, layers, heads, n, head_dim=head_dim)
    lazy = build_selection_arrays(
        da.from_array(weights[:, None], chunks=(1, 1, 1, heads, n)),
        da.from_array(values, chunks=(1, 1, heads, n, head_dim)),
        da.zeros((1, 1, layers), dtype=np.int32, chunks=1),
        [n - 1],
    )
    with limit_threads():
        seconds = alternate(
            lambda: compute(lazy, scheduler="threads", num_workers=2),
            lambda: compute(lazy, scheduler="threads", num_workers=1),
            repeats=repeats,
        )
    two = ("selection_arrays of one sequence, 2 threads over heads", seconds[:, 0])
    one = ("the same on 1 thread", seconds[:, 1])
    sizes = {"layers": layers, "heads": heads, "n": n, "head_dim": head_dim}
    return [compare("selection.threads", "speed", two, one, sizes=sizes, target=1.8)]


BENCHMARKS = (
    Benchmark(
        "selection.product",
        full=partial(compare_with_product, n=1024, head_dim=128, repeats=51),
        small=partial(compare_with_product, n=256, head_dim=64, repeats=5),
    ),
    Benchmark(
        "selection.beside",
        full=partial(compare_extras, n=1024, head_dim=128, repeats=51),
        small=partial(compare_extras, n=256, head_dim=64, repeats=5),
    ),
    Benchmark(
        "selection.pytorch",
        full=partial(compare_with_pytorch, n=1024, head_dim=128, repeats=15),
        small=partial(compare_with_pytorch, n=256, head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.growth",
        full=partial(measure_growth, lengths=(512, 1024, 2048, 4096, 8192), head_dim=128, repeats=7),
        small=partial(measure_growth, lengths=(128, 256, 512), head_dim=64, repeats=3),
    ),
    Benchmark(
        "selection.threads",
        full=partial(measure_threads, layers=8, heads=8, n=1024, head_dim=128, repeats=9),
        small=partial(measure_threads, layers=4, heads=2, n=256, head_dim=64, repeats=3),
    ),
)
