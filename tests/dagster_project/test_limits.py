"""The assets of the limits of selection: their rows beside slow float64 readings of the definitions, and wrong ones."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.distances import CONVERGENCE
from dagster_project.study.home import Home
from dagster_project.study.settings import AnalysisSettings
from geometry.grids import half_octave_grid, log_grid
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, QUERIES, STUDY, measured, read_keys, several
from tests.dagster_project.intervals import DIFFERENCE, columns, near, of_mean, of_statistic

SEQUENCES, LAYERS, HEADS = 5, 2, 4
TEMPERATURES, SOME = STUDY.analysis.temperatures, STUDY.analysis.temperature_sequences
Rows = dict[tuple[Any, ...], dict[str, Any]]


def rows(home: Home, table: str, *keys: str) -> Rows:
    """The rows of a table by their keys, each there once."""
    found = making.rows(home, NAME, table)
    by_key = {tuple(row[key] for key in keys): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def head_of(home: Home, query: int, layer: int, head: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and value states of the keys that a query, given by its position, attends to."""
    return read_keys(home, sequence, QUERIES.index(query), layer, head)


def count_keys(query: int, layer: int) -> int:
    """How many keys a query, given by its position, attends to."""
    return query + 1 - int(FIRST[QUERIES.index(query), layer])


def every_head() -> Iterator[tuple[int, int, int]]:
    return product(QUERIES, range(LAYERS), range(HEADS))


# --- readings of the definitions ---


def chosen(alpha: np.ndarray, n: int) -> list[int]:
    """I_N: the N largest weights, the lower position of equal ones."""
    return sorted(range(alpha.size), key=lambda i: (-alpha[i], i))[:n]


def from_rest(alpha: np.ndarray, values: np.ndarray, n: int) -> float:
    """Distance of the selected sum from that of all others."""
    inside = chosen(alpha, n)
    outside = [i for i in range(alpha.size) if i not in inside]
    y = alpha[:, None] * values
    return float(np.linalg.norm(y[outside].sum(axis=0) - y[inside].sum(axis=0)))


def of_random(alpha: np.ndarray, values: np.ndarray, n: int) -> float:
    """Root mean square over all N-subsets: the signs' second moments on the Gram matrix."""
    y = alpha[:, None] * values
    keys = alpha.size
    both_in = n * (n - 1) / (keys * (keys - 1))
    both_out = (keys - n) * (keys - n - 1) / (keys * (keys - 1))
    signs = np.full((keys, keys), 2 * (both_in + both_out) - 1)
    np.fill_diagonal(signs, 1)
    return float(np.sqrt((signs * (y @ y.T)).sum()))


def shares(alpha: np.ndarray) -> tuple[float, float]:
    """Effective keys and N_90 over the number of keys."""
    p = alpha / alpha.sum()
    known = p[p > 0]
    held = np.cumsum(np.sort(p)[::-1])
    n_90 = next(n for n, sum_ in enumerate(held, 1) if sum_ >= 0.9)
    return float(np.exp(-(known * np.log(known)).sum()) / p.size), n_90 / p.size


def at(alpha: np.ndarray, temperature: float) -> np.ndarray:
    """softmax(l / T) of any logits l that have these weights at T = 1."""
    logits = np.log(alpha) / temperature
    tempered: np.ndarray = np.exp(logits - logits.max())
    return tempered / tempered.sum() * alpha.sum()


def separation(alpha: np.ndarray, values: np.ndarray, n: int) -> tuple[float, float, float, float]:
    """Precision, Recall, specificity and AUC."""
    y, inside = alpha[:, None] * values, chosen(alpha, n)
    outside = [i for i in range(alpha.size) if i not in inside]
    d = np.linalg.norm(y[inside].sum(axis=0) - y, axis=1)
    near, far = d[inside], d[outside]
    k_in, k_out = (near <= far.min()).sum(), (far <= near.max()).sum()
    pairs = (near[:, None] < far).mean() + (near[:, None] == far).mean() / 2
    return n / (n + k_out), k_in / n, 1 - k_out / far.size, float(pairs)


def jacobian(alpha: np.ndarray, temperature: float) -> float:
    """The largest singular value of the whole matrix."""
    p = at(alpha, temperature)
    return float(np.linalg.norm((np.diag(p) - np.outer(p, p)) / temperature, 2))


# --- distances ---


@cache
def relative(
    home: Home, query: int, layer: int, head: int, n: int, distance: Callable[..., float] = from_rest
) -> np.ndarray:
    """A distance over the norm of the output, in every sequence."""
    of_heads = [head_of(home, query, layer, head, sequence) for sequence in range(SEQUENCES)]
    return np.array([distance(alpha, values, n) / np.linalg.norm(alpha @ values) for alpha, values in of_heads])


def of_model(home: Home, query: int, n: int, distance: Callable[..., float] = from_rest) -> np.ndarray:
    """Its mean over the heads that have this N, in every sequence."""
    heads = [place for place in every_head() if place[0] == query and n < count_keys(*place[:2])]
    return np.mean([relative(home, *place, n, distance) for place in heads], axis=0)


def test_those_of_heads_are_means_over_sequences(drawn: Home) -> None:
    found = rows(drawn, "distance_means", "query", "layer", "head", "n")
    for (*place, n), row in found.items():
        random = relative(drawn, *place, n, of_random).mean()
        wanted = {"relative_distance": relative(drawn, *place, n).mean(), "relative_random_distance": random}
        assert near(row, wanted, rel=1e-5)
    assert len(found) == sum(count_keys(*place[:2]) - 1 for place in every_head())


def test_those_of_the_model_are_means_over_heads_of_every_sequence(drawn: Home) -> None:
    found = rows(drawn, "distance_means_model", "query", "n")
    assert [*found] == [(query, n) for query in QUERIES for n in range(1, query + 1)]
    for (query, n), row in found.items():
        wanted = {"relative_random_distance": of_model(drawn, query, n, of_random).mean(), "sequences": SEQUENCES}
        assert near(row, wanted | columns("relative_distance", of_mean(of_model(drawn, query, n))))
        assert row["heads"] == sum(n < count_keys(query, layer) for layer in range(LAYERS)) * HEADS


# --- convergence ---


def shares_of_model(home: Home, query: int) -> np.ndarray:
    """``CONVERGENCE`` of every head of a query in every sequence, (head, measure, sequence)."""
    heads = [place for place in every_head() if place[0] == query]
    found = [[shares(head_of(home, *place, sequence)[0]) for sequence in range(SEQUENCES)] for place in heads]
    return np.moveaxis(np.array(found), 1, 2)


def test_convergence_of_the_model_is_a_mean_over_heads_of_every_sequence(drawn: Home) -> None:
    for (query,), row in rows(drawn, "convergence_model", "query").items():
        heads = shares_of_model(drawn, query)
        for index, name in enumerate(CONVERGENCE):
            low, high = np.quantile(heads[:, index].mean(axis=1), (0.1, 0.9))
            wanted = {name: heads[:, index].mean(), f"{name}_p10": low, f"{name}_p90": high}
            assert near(row, wanted | {"heads": LAYERS * HEADS, "sequences": SEQUENCES})


# --- exponents ---


def exponent(x: np.ndarray, curves: np.ndarray) -> dict[str, float]:
    """The line through ln of the mean curve over ln x, refitted without each sequence; curves (sequence, point)."""

    def slope(sequences: np.ndarray) -> float:
        return float(np.polyfit(np.log(x), np.log(curves[sequences].mean(axis=0)), 1)[0])

    u, v = np.log(x), np.log(curves.mean(axis=0))
    line = np.polyfit(u, v, 1)
    r2 = 1 - ((v - np.polyval(line, u)) ** 2).sum() / ((v - v.mean()) ** 2).sum()
    return columns("exponent", of_statistic(slope, len(curves))) | {
        "level": np.exp(line[1]),
        "r2": r2,
        "points": x.size,
    }


def test_exponents_are_those_of_the_model_refitted_without_each_sequence(drawn: Home) -> None:
    found = rows(drawn, "limit_exponents", "measure", "axis", "query", "n")
    keys, wanted = np.array([15.0, 36.0, 40.0]), {}
    for query, all_keys in zip(QUERIES, (15, 36, 40), strict=True):
        sizes = [n for n in log_grid(all_keys).tolist() if n <= all_keys // 2]
        curves = np.stack([of_model(drawn, query, n) for n in sizes], axis=1)
        wanted["distance", "n", query, None] = exponent(np.array(sizes, float), curves)
    for n in (1, 2, 4):  # 8 is beyond half of 15 keys
        curves = np.stack([of_model(drawn, query, n) for query in QUERIES], axis=1)
        wanted["distance", "n_keys", None, n] = exponent(keys, curves)
    for index, measure in enumerate(CONVERGENCE):
        curves = np.stack([shares_of_model(drawn, query)[:, index].mean(axis=0) for query in QUERIES], axis=1)
        wanted[measure, "n_keys", None, None] = exponent(keys, curves)
        alone = [exponent(keys, curve[None].repeat(2, axis=0))["exponent"] for curve in curves]
        _, low, high = of_mean(alone)  # mutation control: fits of single sequences have another mean
        assert not near(found[measure, "n_keys", None, None], {"exponent_low": low, "exponent_high": high})
    assert set(found) == set(wanted)
    for place, row in found.items():
        assert near(row, wanted[place]), place


# --- temperature ---


def test_selections_at_a_temperature_are_those_of_its_weights(drawn: Home) -> None:
    found = rows(drawn, "temperature_means", "query", "layer", "head", "temperature", "n")
    wanted_n = {(query, layer): half_octave_grid(count_keys(query, layer)).tolist() for query, layer, _ in every_head()}
    assert set(found) == {(*place, t, n) for place in every_head() for t in TEMPERATURES for n in wanted_n[place[:2]]}
    for query, layer, head in ((14, 1, 2), (35, 0, 1), (39, 1, 0)):
        heads = [head_of(drawn, query, layer, head, sequence) for sequence in range(SOME)]
        for t, n in product(TEMPERATURES, wanted_n[query, layer]):
            row = found[query, layer, head, t, n]
            tempered = [(at(alpha, t), values) for alpha, values in heads]
            measures = np.array([separation(*of_head, n) for of_head in tempered])
            own = np.array([separation(*of_head, n) for of_head in heads])
            gains = dict(zip(("recall", "auc"), (measures - own)[:, (1, 3)].T, strict=True))
            wanted = dict(zip(("precision", "recall", "specificity", "auc"), measures.mean(axis=0), strict=True))
            wanted |= {
                "distance": np.mean([from_rest(*of_head, n) for of_head in tempered]),
                "random_distance": np.mean([of_random(*of_head, n) for of_head in tempered]),
                "sequences": SOME,
            }
            for name, gain in gains.items():
                wanted |= columns(f"{name}_gain", of_mean(gain, DIFFERENCE))
            assert near(row, wanted), (query, layer, head, t, n)


def test_sensitivity_is_the_norm_of_the_whole_jacobian(drawn: Home) -> None:
    found = rows(drawn, "sensitivity", "sequence", "query", "layer", "head", "temperature")
    places = [(sequence, *place) for sequence in range(SEQUENCES) for place in every_head()]
    assert set(found) == {(*place, t) for place in places for t in TEMPERATURES}
    for (sequence, *place, t), row in found.items():
        alpha, _ = head_of(drawn, *place, sequence)
        norm = jacobian(alpha / alpha.sum(), t)
        assert row["spectral_norm"] == pytest.approx(norm, rel=1e-6)
        if t != 1:  # mutation control: without the factor 1/T
            assert abs(row["spectral_norm"] - t * norm) > 0.1 * norm


def test_without_a_temperature_of_1_there_are_no_gains(drawn: Home, tmp_path: Path) -> None:
    other = measured(tmp_path, several(2))
    study = STUDY.model_copy(update={"analysis": AnalysisSettings(temperatures=(0.5,), temperature_sequences=9)})
    making.summarise(other, NAME, study, ["temperature"])
    found = rows(other, "temperature_means", "query", "layer", "head", "temperature", "n")
    gains = [f"{name}_gain{end}" for name in ("auc", "recall") for end in ("", "_low", "_high")]
    assert {row[name] for row in found.values() for name in gains} == {None}
    assert {row["sequences"] for row in found.values()} == {2}  # all there are
    own = rows(drawn, "temperature_means", "query", "layer", "head", "temperature", "n")
    assert {key[3] for key in found} == {0.5}
    assert set(found) < set(own)
