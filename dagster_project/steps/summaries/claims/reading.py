"""Reading the arrays that claims use from the stores of a study, layer by layer."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dagster_project.steps.sources import Sources
from dagster_project.steps.summaries.claims.parts import Layer
from geometry.arrays import F64, I64
from geometry.bounds import lower
from geometry.grids import log_grid
from storage.zarr.layers import list_attending_layers, read_layer


def build_grid(sources: Sources) -> I64:
    """The N at which the claims are estimated: a log grid up to the most keys of any layer at the last query."""
    keys = sources.metrics.read("n_keys", (slice(None), len(sources.queries) - 1))
    return log_grid(max(2, int(keys.max())))


def count_layer_groups(sources: Sources) -> list[int]:
    """KV groups of every layer, 0 for one without attention."""
    return [size.kv_heads for size in sources.metrics.layers]


def find_head_groups(sources: Sources) -> dict[tuple[int, int], int]:
    """Index of the KV group of each layer and head."""
    counts = count_layer_groups(sources)
    return {
        (layer, head): sum(counts[:layer]) + head // (size.heads // size.kv_heads)
        for layer, size in enumerate(sources.metrics.layers)
        for head in range(size.heads)
    }


def read_layers(sources: Sources, n: I64) -> Iterator[Layer]:
    """Every layer whose heads attend to two keys or more at the last query, one in memory at a time."""
    counts, query = count_layer_groups(sources), len(sources.queries) - 1
    keys = sources.metrics.read("n_keys", (slice(None), query)).max(axis=0)  # -1 in layers without attention
    for number in list_attending_layers(sources.metrics):
        if keys[number] > 1:
            yield _read_layer(sources, number, int(keys[number]), sum(counts[:number]), n)


def _read_layer(sources: Sources, number: int, n_keys: int, first_group: int, grid: I64) -> Layer:
    metrics, query = sources.metrics, len(sources.queries) - 1
    size, n = metrics.layers[number], grid[grid < n_keys]
    group = size.heads // size.kv_heads

    def read(name: str, index: int | None = None) -> F64:
        """Read an array, (S, H, grid), for one κ if it has several."""
        where = {"query": query} if index is None else {"query": query, "kappa": index}
        return read_layer(metrics, name, number, **where)[..., n - 1].astype(np.float64)

    parts = lower.Ingredients(**{name: read(name) for name in lower.INGREDIENTS})
    scale, kappas = sources.study.analysis.scale, sources.study.analysis.kappas
    value_scale = read_layer(metrics, "value_scale", number, query=query).astype(np.float64)
    unit = value_scale.repeat(group, axis=1)[..., None] if scale == "unit" else np.ones((1, 1, 1))
    given: dict[str, Any] = {"size": n, "n_keys": n_keys, "head_dim": size.head_dim, "unit": unit}
    norms = read_layer(metrics, "value_norm", number).astype(np.float64)
    sink = read_layer(metrics, "norm_y_0", number, query=query).astype(np.float64)
    lengths = norms[..., 0].repeat(group, axis=1)
    return Layer(
        number=number,
        groups=first_group + np.arange(size.heads, dtype=np.int64) // group,
        n_keys=n_keys,
        n=n,
        k_in=read("k_in"),
        k_out=read("k_out"),
        r_min=read("r_min"),
        norm_s=read("norm_s"),
        margin=lower.margin(parts, unit),
        lower={kappa: lower.lower_bounds(parts, **given, kappa=kappa) for kappa in kappas},
        upper={
            kappa: (read("precision_upper", index), read("recall_upper", index)) for index, kappa in enumerate(kappas)
        },
        rho_0=read_layer(metrics, "rho_0_of_keys", number, query=query).astype(np.float64).repeat(group, axis=1),
        sink_times=n_keys * np.divide(sink, lengths, out=np.full_like(sink, np.nan), where=lengths > 0),
        value_norms=norms,
    )
