"""What the metrics of large models need, from measured multiples of bare products: the table of docs/large.md.

``python -m benchmarks.large`` prints the table.
"""

from time import process_time

from benchmarks.heads import draw_head
from benchmarks.measure import alternate, compare, make_product
from benchmarks.metrics import measure_asset
from benchmarks.selection import limit_threads
from dagster_project.analysis.measurement import estimate_bytes, estimate_held_bytes
from geometry import selection_profile
from geometry.layers import estimate_layer_bytes
from storage.zarr.arrays import TENSORS, estimate_sequence_bytes

LLAMA = {"layers": 32, "heads": 32, "kv_heads": 32, "head_dim": 128}
"""LLaMA-2-7B."""

WORKERS = 8


def list_sizes(
    sequences: int, layers: int, heads: int, kv_heads: int, head_dim: int, queries: tuple[int, ...]
) -> dict[str, int]:
    """Sizes of the axes of a study's stores, and ``numbers``, the elements of all its products n x n."""
    sizes = {"sequence": sequences, "query": len(queries), "layer": layers, "head": heads, "kv_head": kv_heads}
    sizes |= {"key": queries[-1] + 1, "head_dim": head_dim, "n": queries[-1], "kappa": 1}
    return sizes | {"numbers": sequences * layers * heads * sum((query + 1) ** 2 for query in queries)}


STUDIES = {
    "LLaMA-2-7B, 100 sequences of 1,024 tokens, 4 queries": list_sizes(100, **LLAMA, queries=(127, 255, 511, 1023)),
    "LLaMA-2-70B, one sequence of 32,768 tokens, 1 query": list_sizes(1, 80, 64, 8, 128, queries=(32767,)),
}
"""Studies whose metrics are computed on paper."""


def build_table(n: int, long: int, repeats: int) -> str:
    """The table in Markdown; multiples are measured at n keys, and for longer contexts at ``long`` keys."""
    (asset,) = measure_asset(
        sequences=2, **LLAMA | {"layers": 1}, queries=[n // 8 - 1, n // 4 - 1, n // 2 - 1, n - 1], repeats=repeats
    )
    weights, values = draw_head(long, LLAMA["head_dim"])
    contenders = (lambda: selection_profile(weights, values)), make_product(values)
    with limit_threads():
        of_head = alternate(*contenders, repeats=repeats, clock=process_time)
    head = compare("large.head", "cost", ("profile", of_head[:, 0]), ("product", of_head[:, 1]), sizes={"n": long})
    lines = [
        "| study | multiple | processor seconds | seconds, 8 workers | tensors | metrics | memory of 1 / 8 threads |",
        "|---|---|---|---|---|---|---|",
    ]
    for study, sizes in STUDIES.items():
        one = asset if sizes["key"] <= n else head
        numbers = long**2 if one is head else 2 * LLAMA["heads"] * sum((n // 2**k) ** 2 for k in range(4))
        seconds = one.what_median * sizes["numbers"] / numbers
        tensors = sizes["sequence"] * estimate_sequence_bytes(TENSORS, sizes)
        metrics = sizes["sequence"] * sizes["layer"] * estimate_bytes(sizes)
        of_thread = estimate_layer_bytes(sizes, sizes["head"], sizes["kv_head"]) + estimate_held_bytes(sizes)
        memory = " / ".join(f"{threads * of_thread / 1e9:.1f}" for threads in (1, WORKERS))
        lines.append(
            f"| {study} | {one.ratio:.2f} | {seconds:,.0f} | {seconds / WORKERS:,.0f} | {tensors / 1e9:,.1f} GB "
            f"| {metrics / 1e9:,.1f} GB | {memory} GB |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(build_table(1024, 8192, 3))
