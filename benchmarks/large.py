"""What the metrics of large models need, from measured multiples of bare products: the table of docs/large.md.

``python -m benchmarks.large`` prints the table.
"""

from dataclasses import dataclass
from time import process_time

from benchmarks.heads import draw_head
from benchmarks.measure import Result, alternate, compare, make_product
from benchmarks.metrics import measure_asset
from benchmarks.selection import limit_threads
from dagster_project.analysis.measurement import estimate_bytes, estimate_held_bytes
from geometry import selection_profile
from geometry.layers import estimate_layer_bytes
from storage.zarr.arrays import TENSORS, estimate_sequence_bytes

LLAMA = {"layers": 32, "heads": 32, "kv_heads": 32, "head_dim": 128}
"""LLaMA-2-7B."""

WORKERS = 8


@dataclass(frozen=True)
class Study:
    """A study whose metrics are computed on paper."""

    name: str
    sequences: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    queries: tuple[int, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes of its stores."""
        sizes = {"sequence": self.sequences, "query": len(self.queries), "layer": self.layers, "head": self.heads}
        sizes |= {"kv_head": self.kv_heads, "key": self.queries[-1] + 1, "head_dim": self.head_dim}
        return sizes | {"n": self.queries[-1], "kappa": 1}

    @property
    def numbers(self) -> int:
        """Elements of all its products n x n."""
        return self.sequences * self.layers * self.heads * sum((query + 1) ** 2 for query in self.queries)


STUDIES = (
    Study("LLaMA-2-7B, 100 sequences of 1,024 tokens, 4 queries", 100, **LLAMA, queries=(127, 255, 511, 1023)),
    Study("LLaMA-2-70B, one sequence of 32,768 tokens, 1 query", 1, 80, 64, 8, 128, queries=(32767,)),
)


def build_table(n: int, long: int, repeats: int) -> str:
    """The table in Markdown; multiples are measured at n keys, and for longer contexts at ``long`` keys."""
    asset, _ = measure_asset(
        sequences=2, **LLAMA | {"layers": 1}, queries=[n // 8 - 1, n // 4 - 1, n // 2 - 1, n - 1], repeats=repeats
    )
    head = _measure_head(long, repeats)
    lines = [
        "| study | multiple | processor seconds | seconds, 8 workers | tensors | metrics | memory of 1 / 8 threads |",
        "|---|---|---|---|---|---|---|",
    ]
    for study in STUDIES:
        one = asset if study.sizes["key"] <= n else head
        numbers = long**2 if one is head else 2 * LLAMA["heads"] * sum((n // 2**k) ** 2 for k in range(4))
        seconds = one.what_median * study.numbers / numbers
        tensors = study.sequences * estimate_sequence_bytes(TENSORS, study.sizes)
        metrics = study.sequences * study.layers * estimate_bytes(study.sizes)
        of_thread = estimate_layer_bytes(study.sizes, study.heads, study.kv_heads) + estimate_held_bytes(study.sizes)
        memory = " / ".join(f"{threads * of_thread / 1e9:.1f}" for threads in (1, WORKERS))
        lines.append(
            f"| {study.name} | {one.ratio:.2f} | {seconds:,.0f} | {seconds / WORKERS:,.0f} | {tensors / 1e9:,.1f} GB "
            f"| {metrics / 1e9:,.1f} GB | {memory} GB |"
        )
    return "\n".join(lines)


def _measure_head(n: int, repeats: int) -> Result:
    """The profile of one head against its bare product."""
    weights, values = draw_head(n, LLAMA["head_dim"])
    with limit_threads():
        seconds = alternate(
            lambda: selection_profile(weights, values), make_product(values), repeats=repeats, clock=process_time
        )
    return compare("large.head", "cost", ("profile", seconds[:, 0]), ("product", seconds[:, 1]), sizes={"n": n})


if __name__ == "__main__":
    print(build_table(1024, 8192, 3))
