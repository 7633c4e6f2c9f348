"""Made-up studies for the claims of the paper: layers, fits, labels and tables that are drawn to show something.

Holds what ``dagster_project.assets.summaries.claims`` estimates from, without stores. What does not belong here: which
study supports which claim.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from dagster_project.assets.summaries.claims import fits, kinds
from dagster_project.assets.summaries.claims.bounds import Bounds
from dagster_project.assets.summaries.claims.chance import MEASURES, estimate_chance_claims
from dagster_project.assets.summaries.claims.effects import CONTRASTS, Function, estimate_budget_claims
from dagster_project.assets.summaries.claims.norms import Norms
from dagster_project.assets.summaries.claims.parts import Estimated, Layer, Pair, Resampled, Statistics
from dagster_project.assets.summaries.claims.regimes import estimate_regime_claims
from dagster_project.assets.summaries.claims.separation import Separation
from dagster_project.assets.summaries.claims.sink import Sink
from geometry.statistics.resampling import resample

from geometry.arrays import F64
from geometry.assumptions.phases import phase_curve
from geometry.grids import log_grid
from storage.warehouse.relations import create_relations, create_tables, read_paper_claims

SEQUENCES, LAYERS, HEADS, KV, POSITIONS = 12, 4, 8, 4, 40
CLUSTERS = LAYERS * KV
KAPPAS = (0.5, 2.0)
LEAST = {claim["claim"]: claim["least_rows"] for claim in read_paper_claims()}

Curve = Callable[[F64, F64], F64]
"""A quantity from N, (grid,), and ρ_0 of a head, (H, 1)."""


def statistics(sequences: int = SEQUENCES, clusters: int = CLUSTERS) -> Statistics:
    return Statistics(resample(sequences, clusters, 400), len(LEAST))


def flat(level: float) -> Curve:
    """A quantity that does not depend on N."""
    return lambda n, rho_0: np.full(np.broadcast_shapes(n.shape, rho_0.shape), level)


def noisy(rng: np.random.Generator, mean: F64, sequences: int, size: float = 0.01) -> F64:
    """A quantity of every sequence, (S, …), whose mean is about this."""
    return mean + size * rng.standard_normal((sequences, *mean.shape))


def layers(
    *,
    precision: Curve | None = None,
    specificity: Curve | None = None,
    recall: Curve | None = None,
    r_min: Curve | None = None,
    margin: float = 0.1,
    lower: tuple[float, float] = (-0.05, -0.05),
    upper: tuple[float, float] = (0.05, 0.05),
    sink_times: float = 30.0,
    sink_norm: float = 0.2,
    between: float = 0.0,
    within: float = 0.3,
    n_keys: int = 64,
    sequences: int = SEQUENCES,
    count: int = LAYERS,
    heads: int = HEADS,
    kv: int = KV,
) -> list[Layer]:
    """Layers of heads whose ρ_0 runs from -0.5 to 0.5.

    Parameters
    ----------
    precision, specificity, recall, r_min
        Means; ``specificity`` is used where no ``precision`` is given. ``r_min`` is a multiple of the norm of s_N.
    margin
        Δ/B at every N.
    lower, upper
        Distances of the bounds from the means of Precision and Recall; bounds end at 0 and 1.
    sink_times, sink_norm
        Weight of position 0 as a multiple of the uniform share, and norm of its value state.
    between, within
        By how much expected norms vary over positions, and norms within a sequence about these.
    """
    rng = np.random.default_rng(0)
    n = log_grid(n_keys)
    n = n[n < n_keys]
    found = []
    for number in range(count):
        rho_0 = np.linspace(-0.5, 0.5, heads)[(np.arange(heads) * 3 + number) % heads]
        at = n.astype(np.float64), rho_0[:, None]
        means = {
            "recall": (recall or flat(0.6))(*at),
            "specificity": (specificity or flat(0.6))(*at),
            "r_min": (r_min or flat(1.0))(*at),
        }
        shown = {name: noisy(rng, mean, sequences) for name, mean in means.items()}
        k_out = (1 - shown["specificity"]) * (n_keys - n)
        if precision is not None:
            k_out = n / noisy(rng, precision(*at), sequences, 0.001) - n
        pair = n / (n + k_out), shown["recall"]
        lengths = 1 + between * np.linspace(-1, 1, POSITIONS) + within * rng.standard_normal((sequences, kv, POSITIONS))
        lengths = np.abs(lengths)
        lengths[..., 0] = sink_norm * noisy(rng, np.ones(kv), sequences)
        found.append(
            Layer(
                number=number,
                groups=number * kv + np.arange(heads) // (heads // kv),
                n_keys=n_keys,
                n=n,
                k_in=shown["recall"] * n,
                k_out=k_out,
                r_min=shown["r_min"],
                norm_s=np.ones_like(k_out),
                margin=np.full_like(k_out, margin),
                lower={kappa: _apart(pair, lower) for kappa in KAPPAS},
                upper={kappa: _apart(pair, upper) for kappa in KAPPAS},
                rho_0=noisy(rng, rho_0, sequences),
                sink_times=np.full((sequences, heads), sink_times),
                value_norms=lengths,
            )
        )
    return found


def _apart(pair: Pair, distance: tuple[float, float]) -> Pair:
    """Bounds at these distances from Precision and Recall."""
    precision, recall = (
        np.clip(of_one + by, 0, 1) if np.isfinite(by) else np.full_like(of_one, by > 0)
        for of_one, by in zip(pair, distance, strict=True)
    )
    return precision, recall


def estimates(made: Sequence[Layer]) -> dict[str, Estimated]:
    """The estimates of all claims that are read from layers."""
    shared = statistics(len(made[0].k_in), sum(layer.value_norms.shape[1] for layer in made))
    n = log_grid(max(layer.n_keys for layer in made))
    subjects = (
        Separation(n, shared),
        Sink(n, shared),
        Norms(shared),
        Bounds(n, shared, KAPPAS, least=LEAST),
    )
    separation, sink, norms, bounds = subjects
    for layer in made:
        resampled = Resampled(layer, shared.resampling)
        for subject in subjects:
            subject.add(resampled)
    with closing(database()) as connection:
        found = separation.estimate_claims(connection)
    return found | sink.estimate_claims() | norms.estimate_claims() | bounds.estimate_claims()


def database() -> duckdb.DuckDBPyConnection:
    """An empty warehouse in memory."""
    connection = duckdb.connect()
    create_tables(connection)
    create_relations(connection)
    return connection


def cosines(curve: Callable[[F64], F64], *, noise: float = 0.002) -> dict[str, Estimated]:
    """Claims about similarity where the mean cosine follows a curve of the distance."""
    rng, distance, groups = np.random.default_rng(1), np.arange(POSITIONS, dtype=np.float64), 10
    of_groups = curve(distance) + noise * rng.standard_normal((groups, CLUSTERS, POSITIONS))
    whole = fits.Left(np.clip(of_groups, -1, 1), np.ones_like(of_groups)).compute_means()
    return fits.estimate_similarity_claims(fits.fit_cosines(whole), statistics(groups))


def weights(positions: int = 96, *, scatter: float = 0.02, alike: float = 0.0, **phases: Any) -> dict[str, Estimated]:
    """Claims about weights that follow Assumption 3 but for scatter, and for noise that all sequences share."""
    rng, groups = np.random.default_rng(2), (10, 10)
    given: dict[str, Any] = {"p_sink": 0.4, "p_base": 0.002, "eta": 0.6, "eta_growth": 0.08, "omega": 1.3}
    given |= {"t_1": positions * 3 // 10, "t_2": positions * 8 // 10} | phases
    curve = phase_curve(np.arange(positions), **given) * np.exp(alike * rng.standard_normal(positions))
    total = curve * np.exp(scatter * rng.standard_normal((*groups, positions)))
    found = fits.fit_mean_weights(total, np.ones_like(total), heads=LAYERS * HEADS, clusters=CLUSTERS)
    return fits.estimate_weight_claims(found, statistics())


def labelled(*of_layers: str, sure: float = 0.995) -> dict[str, Estimated]:
    """Claims about kinds, of layers whose heads have these labels in order, one letter each; O is Other.

    Every replicate has the same label with the probability ``sure``, else Other.
    """
    names = {"T": "Retriever", "M": "Mixer", "R": "Reset", "O": "Other"}
    rng, shared = np.random.default_rng(3), statistics(SEQUENCES, sum(len(letters) for letters in of_layers))
    own = np.array([names[letter] for letters in of_layers for letter in letters])
    kept = rng.random((own.size, shared.resampling.replicates + 1)) < sure
    kept[:, 0] = True
    labels = np.where(kept, own[:, None], "Other")
    depth = np.repeat(np.arange(len(of_layers)), [len(letters) for letters in of_layers])
    found = kinds.Kinds(labels, depth, np.arange(own.size), len(of_layers), shared)
    return kinds.estimate_kind_claims(found)


def regimes(positive: float | None, *, regime: str) -> dict[str, Estimated]:
    """Claims about Table 2, where Δ > 0 holds in about this share of a regime; None: no head has it."""
    rng, groups = np.random.default_rng(4), places()
    rows: Iterable[dict[str, Any]] = (
        {
            "sequence": sequence,
            "layer": layer,
            "head": head,
            "regime": regime if positive is not None else "I",
            "positive_share": float(np.clip((positive or 0) + 0.05 * rng.standard_normal(), 0, 1)),
        }
        for sequence in range(SEQUENCES)
        for layer, head in groups
    )
    return estimate_regime_claims(pa.Table.from_pylist(list(rows)), groups, statistics())


@cache
def places() -> dict[tuple[int, int], int]:
    """KV group of each layer and head."""
    return {(layer, head): layer * KV + head // (HEADS // KV) for layer in range(LAYERS) for head in range(HEADS)}


def separability(null: str, difference: dict[str, float]) -> dict[str, Estimated]:
    """Claims about chance, where measures differ from a null by about so much; measures left out by nothing."""
    rng, rows = np.random.default_rng(5), []
    for layer, head in places():
        for measure in MEASURES:
            for n in (1, 2, 4, 8, 16):
                apart = difference.get(measure, 0.0) + 0.01 * rng.standard_normal()
                row = {
                    "layer": layer,
                    "head": head,
                    "n": n,
                    "null_model": null,
                    "measure": measure,
                    "difference": apart,
                }
                rows.append(row | {"low": apart - 0.02, "high": apart + 0.02})
    return estimate_chance_claims(pa.Table.from_pylist(rows), places(), statistics())


def worth(of_recall: Callable[[F64], F64], *, size: float = 0.1) -> dict[str, Estimated]:
    """The claim that Recall goes with what heads are worth, up to ``size`` nats, a function of their Recall."""
    found = layers(recall=lambda n, rho_0: 0.5 + 0.4 * rho_0 + 0 * n, count=32, kv=8, n_keys=16, sequences=40)
    shared = statistics(40, sum(layer.value_norms.shape[1] for layer in found))
    function, ablation = Function(shared), []
    for layer in found:
        function.add(Resampled(layer, shared.resampling))
        recall = (layer.k_in / layer.n).mean(axis=(0, 2))
        cost = size * of_recall(recall)
        ablation += [
            {"layer": layer.number, "head": head, "kind": "zero", "delta_loss": float(one)}
            for head, one in enumerate(cost)
        ]
    return function.estimate_claims(ablation, [])


def policies(apart: float, *, cost: float = 0.5, sequences: int = 8) -> dict[str, Estimated]:
    """Claims about budgets, where geometry's cost so many nats more than their controls."""
    rng = np.random.default_rng(7)
    of_geometry = {policy for policy, _ in CONTRASTS.values()}
    controls = {control for _, control in CONTRASTS.values()} - of_geometry
    rows = [
        {
            "policy": policy,
            "setting": policy,
            "budget": budget,
            "sequence": sequence,
            "plain_loss": 3.0,
            "loss": 3.0 + cost + (apart if policy in of_geometry else 0.0) + 0.01 * cost * rng.standard_normal(),
        }
        for policy in sorted(of_geometry | controls)
        for budget in (0.1, 0.5)
        for sequence in range(sequences)
    ]
    return estimate_budget_claims(rows, statistics())


def without_effects() -> dict[str, Estimated]:
    """Claims about what heads do where no model was run again."""
    return Function(statistics()).estimate_claims([], [])


def without_nulls() -> dict[str, Estimated]:
    """Claims about chance where no null was computed."""
    return estimate_chance_claims(None, places(), statistics())
