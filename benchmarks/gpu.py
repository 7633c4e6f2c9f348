"""The selection profile on a GPU against that on the CPU.

Holds the benchmark ``selection.gpu``, which needs CUDA.
"""

from functools import partial

import numpy as np
import torch

from benchmarks.heads import draw_layer
from benchmarks.measure import Benchmark, Result, alternate, compare
from geometry import selection_profile


def find_missing() -> str | None:
    """Requirement that this machine does not meet; None if there is none."""
    return None if torch.cuda.is_available() else "no CUDA device"


def measure_heads(*, heads: int, kv_heads: int, n: int, head_dim: int, repeats: int) -> list[Result]:
    """The profiles of the heads of one layer, whose arrays are in the memory of the host."""
    weights, values = draw_layer(np.random.default_rng(0), heads=heads, kv_heads=kv_heads, n=n, head_dim=head_dim)
    grouped, states = weights.reshape(kv_heads, -1, n), values[:, None]
    contenders = [partial(selection_profile, grouped, states, device=device) for device in ("cuda", "cpu")]
    seconds = alternate(*contenders, repeats=repeats)
    sizes = {"heads": heads, "kv_heads": kv_heads, "n": n, "head_dim": head_dim}
    ours = ("selection_profile of the heads of a layer, on the GPU and one thread of the CPU", seconds[:, 0])
    theirs = ("the same on one thread of the CPU", seconds[:, 1])
    return [compare("selection.gpu", "cost", ours, theirs, sizes=sizes, target=0.5, note=torch.cuda.get_device_name())]


BENCHMARK = Benchmark(
    "selection.gpu",
    full=partial(measure_heads, heads=32, kv_heads=8, n=1024, head_dim=128, repeats=5),
    small=partial(measure_heads, heads=4, kv_heads=2, n=128, head_dim=64, repeats=3),
    missing=find_missing,
)
