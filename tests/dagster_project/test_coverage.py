"""How means lie within their bounds, beside a literal reading: of two made-up heads with Δ > 0, and one without."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis import coverage
from dagster_project.analysis.coverage import METRICS, Coverage
from geometry.bounds.lower import INGREDIENTS
from geometry.grids import log_grid
from tests.geometry.printed_bounds import bound_selection

SEQUENCES, HEADS, KEYS, HEAD_DIM, KAPPAS = 4, 3, 40, 64, (0.5, 8.0)
GRID = log_grid(KEYS)
NO_PREMISE = 2


def draw() -> dict[str, np.ndarray]:
    """What a layer measures, (sequence, head, N) or (sequence, head, κ, N)."""
    rng, n = np.random.default_rng(0), np.arange(1, KEYS)
    shape = (SEQUENCES, HEADS, KEYS - 1)
    least = rng.uniform(1, 1.2, shape)
    rho = np.where(np.arange(HEADS)[:, None] == NO_PREMISE, 0.9, rng.uniform(0, 0.02, shape))
    upper = 1 - rng.uniform(0, 0.3, (SEQUENCES, HEADS, len(KAPPAS), KEYS - 1))
    return {
        "a_0": 2 * least,
        "s_in": least * n**0.4,
        "a_min_in": least,
        "a_max_in": 1.1 * least,
        "a_max_out": 0.5 * least,
        "rho_out": rho,
        "k_in": rng.integers(0.7 * n, n + 1, shape),
        "k_out": rng.integers(0, 0.3 * (KEYS - n) + 1, shape),
        "precision_upper": upper,
        "recall_upper": upper**2,
    }


def compute(arrays: dict[str, np.ndarray]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows by κ, metric and the sequence that is left out, of blocks of two sequences."""
    sources: Any = SimpleNamespace(
        query=KEYS - 1,
        study=SimpleNamespace(analysis=SimpleNamespace(kappas=KAPPAS)),
        metrics=SimpleNamespace(sequences=SEQUENCES),
    )
    made = Coverage(sources)
    for part in (slice(0, 2), slice(2, SEQUENCES)):
        size = SimpleNamespace(head_dim=HEAD_DIM)
        block: Any = SimpleNamespace(query=KEYS - 1, n_keys=KEYS, size=size, grid=GRID, is_last=part.stop > 2)
        block.unit, block.read = np.ones((2, HEADS)), lambda name, part=part: arrays[name][part]
        assert list(made.add(block, made.measure(block))) == []
    rows = [row for _, batch in made.finish() for row in batch.to_pylist()]
    return {(row["kappa"], row["metric"], row["without_sequence"]): row for row in rows}


def read(arrays: dict[str, np.ndarray], kappa: float, metric: str, without: int | None) -> dict[str, float]:
    """The same one by one."""
    each = np.zeros((4, SEQUENCES, HEADS, GRID.size))  # value, bounds, and whether Δ > 0
    for s, head, (at, n) in product(range(SEQUENCES), range(HEADS), enumerate(GRID)):
        parts = {name: arrays[name][s, head, n - 1] for name in INGREDIENTS}
        bounds = bound_selection(parts, 1.0, n=n, keys=KEYS, d=HEAD_DIM, kappa=kappa)
        k_in, k_out = (arrays[name][s, head, n - 1] for name in ("k_in", "k_out"))
        value = n / (n + k_out) if metric == "precision" else k_in / n
        upper = arrays[f"{metric}_upper"][s, head, KAPPAS.index(kappa), n - 1]
        each[:, s, head, at] = value, bounds[f"{metric}_lower"], upper, bounds["margin"] > 0
    floor = GRID / KEYS if metric == "precision" else 0 * GRID
    mean, low, high, _ = each[:, [s for s in range(SEQUENCES) if s != without]].mean(axis=1)  # (head, N)
    _, low_of_all, high_of_all, positive = each.mean(axis=1)
    carried = (GRID > 1) & (positive > 0.5) & (high_of_all - np.maximum(low_of_all, floor) <= (1 - floor) / 2)
    inside = GRID[1:]
    weights = np.array([0, *np.diff(np.log([1.5, *np.sqrt(inside[1:] * inside[:-1]), KEYS - 0.5]))])
    of_model = [curve.mean(axis=0) for curve in (mean, low, high)]
    ends = low_of_all.mean(axis=0), high_of_all.mean(axis=0)
    shown = weights * (ends[1] - np.maximum(ends[0], floor) <= (1 - floor) / 2)
    within, enveloped = ((low <= mean) & (mean <= high) for mean, low, high in ((mean, low, high), of_model))
    return {
        "covered": (within * weights * carried).sum() / (weights * carried).sum(),
        "covered_rows": carried.sum(),
        "enveloped": (enveloped * shown).sum() / shown.sum(),
        "enveloped_rows": (shown > 0).sum(),
        "upper_distance": (np.abs(of_model[2] - of_model[0]) * weights).sum() / weights.sum(),
    }


def check() -> None:
    arrays = draw()
    found = compute(arrays)
    assert len(found) == len(KAPPAS) * len(METRICS) * (SEQUENCES + 1)
    for place, row in found.items():
        wanted = read(arrays, *place)
        assert {name: row[name] for name in wanted} == pytest.approx(wanted), place
    assert any(0 < row["covered"] < 1 for row in found.values())


def test_rows_are_those_of_a_literal_reading_of_all_sequences_and_without_each() -> None:
    check()


@pytest.mark.parametrize(("name", "value"), [("WIDEST", 0.3), ("MOST", -1.0), ("ROUNDING", 0.05)])
def test_another_rule_would_be_noticed(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    monkeypatch.setattr(coverage, name, value)
    with pytest.raises(AssertionError):
        check()
