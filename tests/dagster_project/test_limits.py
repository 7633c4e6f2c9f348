"""The assets of the limits of selection: their rows beside slow float64 readings of the definitions, and wrong ones."""

import shutil
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dagster_project.assets.summaries.convergence import MEASURES, compute_convergence, estimate_convergence_bytes
from scipy import stats

from dagster_project.analysis.distances import compute_distances, estimate_distances_bytes
from dagster_project.analysis.sources import open_sources
from dagster_project.analysis.temperature import compute_temperature, estimate_temperature_bytes
from dagster_project.assets.summaries import LIMITS
from dagster_project.study.home import Home
from dagster_project.study.studies import AnalysisSettings, Study
from geometry.grids import log_grid
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, QUERIES, STUDY, measured, several

ASSETS = [asset.name for asset in LIMITS]
SEQUENCES, LAYERS, HEADS = 5, 2, 4
SOME = 3
"""How many sequences are looked at again at other temperatures."""
TEMPERATURES = (0.5, 1.0, 4.0)
ANALYSIS = {"temperatures": TEMPERATURES, "temperature_sequences": SOME}
OF_LIMITS = Study.model_validate(STUDY.model_dump(exclude_unset=True) | {"analysis": ANALYSIS})
CAP = 7.5
"""Soft cap of the logits of layer 1."""
Rows = dict[tuple[Any, ...], dict[str, Any]]


def with_norms(sequences: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Drawn sequences with norms of queries and keys, and a soft cap in layer 1."""
    rng = np.random.default_rng(3)
    for drawn in sequences:
        shape = drawn["learned_sink"].shape
        drawn |= {name: rng.uniform(3, 5, shape).astype(np.float32) for name in ("query_norm", "key_norm")}
        drawn["logit_cap"] = np.array([np.nan, CAP], np.float32)
    return sequences


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which these assets have been made."""
    found = measured(tmp_path_factory.mktemp("limits"), with_norms(several(SEQUENCES)))
    making.summarise(found, NAME, OF_LIMITS, ASSETS)
    return found


@pytest.fixture(scope="module")
def tensors(home: Home) -> dict[str, np.ndarray]:
    """Weights and value states, in float64."""
    store = SequenceStore.open(home.tensors(NAME), TENSORS)
    return {name: np.asarray(store.array(name)[:], np.float64) for name in ("attention", "values", "key_norm")}


def rows(home: Home, table: str, *keys: str) -> Rows:
    """The rows of a table by their keys, each there once."""
    found = making.rows(home, NAME, table)
    by_key = {tuple(row[key] for key in keys): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def head_of(
    tensors: dict[str, np.ndarray], query: int, layer: int, head: int, sequence: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and value states of the keys that a query, given by its position, attends to."""
    index = QUERIES.index(query)
    keys = slice(FIRST[index, layer], query + 1)
    return (
        tensors["attention"][sequence, index, layer, head, keys],
        tensors["values"][sequence, layer, head // 2, keys],
    )


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


def from_output(alpha: np.ndarray, values: np.ndarray, n: int) -> float:
    """A wrong reading: the distance of s_N from the output."""
    y = alpha[:, None] * values
    return float(np.linalg.norm(y.sum(axis=0) - y[chosen(alpha, n)].sum(axis=0)))


def of_random(alpha: np.ndarray, values: np.ndarray, n: int) -> float:
    """Root mean square over all N-subsets: the signs' second moments on the Gram matrix."""
    y = alpha[:, None] * values
    keys = alpha.size
    both_in = n * (n - 1) / (keys * (keys - 1))
    both_out = (keys - n) * (keys - n - 1) / (keys * (keys - 1))
    signs = np.full((keys, keys), 2 * (both_in + both_out) - 1)
    np.fill_diagonal(signs, 1)
    return float(np.sqrt((signs * (y @ y.T)).sum()))


def with_replacement(alpha: np.ndarray, values: np.ndarray, n: int) -> float:
    """A wrong reading: each key is selected by itself, with probability N/n."""
    y = alpha[:, None] * values
    signs = np.full((alpha.size, alpha.size), (1 - 2 * n / alpha.size) ** 2)
    np.fill_diagonal(signs, 1)
    return float(np.sqrt((signs * (y @ y.T)).sum()))


def shares(alpha: np.ndarray) -> tuple[float, float, float]:
    """Effective keys and N_90 over the number of keys, and the largest difference from uniform weights."""
    p = alpha / alpha.sum()
    known = p[p > 0]
    held = np.cumsum(np.sort(p)[::-1])
    n_90 = next(n for n, sum_ in enumerate(held, 1) if sum_ >= 0.9)
    return float(np.exp(-(known * np.log(known)).sum()) / p.size), n_90 / p.size, float(np.abs(p - 1 / p.size).max())


def at(alpha: np.ndarray, temperature: float) -> np.ndarray:
    """softmax(l / T) of any logits l that have these weights at T = 1."""
    logits = np.log(alpha) / temperature
    tempered: np.ndarray = np.exp(logits - logits.max())
    return tempered / tempered.sum() * alpha.sum()


def inverted(alpha: np.ndarray, temperature: float) -> np.ndarray:
    """A wrong reading: α^T in place of α^(1/T)."""
    return at(alpha, 1 / temperature)


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


def line(x: np.ndarray, y: np.ndarray, cluster: np.ndarray) -> dict[str, float]:
    """The line through ln y over ln x, with the jackknife over clusters, one refit after the other."""
    u, v = np.log(x), np.log(y)

    def fitted(kept: np.ndarray) -> np.ndarray:
        return np.array(np.polyfit(u[kept], v[kept], 1))

    whole, labels = fitted(np.ones(u.size, bool)), np.unique(cluster)
    moved = np.array([fitted(cluster != label) for label in labels]) - whole
    errors = np.sqrt((labels.size - 1) / labels.size * (moved**2).sum(axis=0))
    reach = stats.t.ppf(0.975, labels.size - 1) * errors[0]
    residual = v - np.polyval(whole, u)
    return {
        "slope": whole[0],
        "slope_se": errors[0],
        "slope_low": whole[0] - reach,
        "slope_high": whole[0] + reach,
        "intercept": whole[1],
        "intercept_se": errors[1],
        "r2": 1 - (residual**2).sum() / ((v - v.mean()) ** 2).sum(),
        "points": u.size,
        "clusters": labels.size,
    }


def near(row: dict[str, Any], wanted: dict[str, float], rel: float = 1e-5, abs_: float = 1e-9) -> bool:
    """Whether a row has these numbers."""
    return {name: row[name] for name in wanted} == pytest.approx(wanted, rel=rel, abs=abs_)


def mean_and_error(numbers: list[float]) -> tuple[float, float]:
    return float(np.mean(numbers)), float(np.std(numbers, ddof=1) / np.sqrt(len(numbers)))


# --- distances ---


def distances_of(
    tensors: dict[str, np.ndarray], place: tuple[int, int, int], n: int, distance: Callable[..., float]
) -> tuple[list[float], list[float]]:
    """A distance in every sequence, and over the norm of the output."""
    of_heads = [head_of(tensors, *place, sequence) for sequence in range(SEQUENCES)]
    found = [distance(*of_head, n) for of_head in of_heads]
    outputs = [np.linalg.norm(alpha @ values) for alpha, values in of_heads]
    return found, [length / output for length, output in zip(found, outputs, strict=True)]


def test_distances_are_means_over_sequences(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "distance_means", "query", "layer", "head", "n")
    keys = {(query, layer): query + 1 - FIRST[QUERIES.index(query), layer] for query, layer, _ in every_head()}
    assert set(found) == {(*place, n) for place in every_head() for n in range(1, keys[place[:2]])}
    wrong = {"distance": 0.0, "random_distance": 0.0}
    for (*place, n), row in found.items():
        of_place = partial(distances_of, tensors, tuple(place), n)
        (distance, relative), (random, random_relative) = of_place(from_rest), of_place(of_random)
        mean, error = mean_and_error(distance)
        relative_mean, relative_error = mean_and_error(relative)
        wanted = {
            "distance": mean,
            "distance_se": error,
            "random_distance": np.mean(random),
            "relative_distance": relative_mean,
            "relative_distance_se": relative_error,
            "relative_random_distance": np.mean(random_relative),
            "sequences": SEQUENCES,
        }
        assert near(row, wanted, abs_=1e-7), (place, n)
        for name, reading in (("distance", from_output), ("random_distance", with_replacement)):
            wrong[name] = max(wrong[name], abs(np.mean(of_place(reading)[0]) / row[name] - 1))
    assert min(wrong.values()) > 0.05  # mutation controls


def test_those_of_the_model_count_heads_alike(home: Home) -> None:
    found = rows(home, "distance_means_model", "query", "n")
    heads = list(rows(home, "distance_means", "query", "layer", "head", "n").items())
    for (query, n), row in found.items():
        of_heads = [of_head for (q, _, _, m), of_head in heads if (q, m) == (query, n)]
        assert row["heads"] == len(of_heads)
        for name in ("relative_distance", "relative_random_distance"):
            assert row[name] == pytest.approx(np.mean([of_head[name] for of_head in of_heads]), rel=1e-9)
    assert {key for key, row in found.items() if row["heads"] == HEADS} == {
        *((35, n) for n in (33, 34, 35)),
        *((39, n) for n in range(33, 40)),
    }  # where a window leaves one layer
    assert [query for query, _ in found] == [query for query in QUERIES for _ in range(query)]


def fitted_n(keys: int) -> list[int]:
    """The N up to half of the keys that fits against N use."""
    grid = {*log_grid(keys).tolist(), *(2**k for k in range(6))}
    return [n for n in sorted(grid) if n <= keys // 2]


def test_fits_against_n_are_those_of_all_sequences(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "distance_fits", "measure", "axis", "query", "n", "layer", "head")
    for (measure, reading), (query, layer, head) in product(
        (("distance", from_rest), ("random_distance", of_random)), [(14, 0, 0), (35, 1, 3), (39, 0, 2)]
    ):
        sizes = fitted_n(query + 1 - FIRST[QUERIES.index(query), layer])
        y = np.array([distances_of(tensors, (query, layer, head), n, reading)[0] for n in sizes])
        x, cluster = np.broadcast_arrays(np.array(sizes, float)[:, None], np.arange(SEQUENCES))
        row = found[measure, "n", query, None, layer, head]
        assert row["status"] == "ok"
        assert near(row, line(x.ravel(), y.ravel(), cluster.ravel()), rel=1e-4)


def test_fits_against_the_number_of_keys_take_all_queries(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "distance_fits", "measure", "axis", "query", "n", "layer", "head")
    assert {n for _, axis, _, n, *_ in found if axis == "n_keys"} == {1, 2, 4}  # 8 is beyond half of 15 keys
    for layer, n in product(range(LAYERS), (1, 4)):
        keys = np.array([query + 1 - FIRST[index, layer] for index, query in enumerate(QUERIES)], float)
        y = np.array([distances_of(tensors, (query, layer, 1), n, from_rest)[0] for query in QUERIES])
        x, cluster = np.broadcast_arrays(keys[:, None], np.arange(SEQUENCES))
        row = found["distance", "n_keys", None, n, layer, 1]
        if np.unique(keys).size > 1:
            assert near(row, line(x.ravel(), y.ravel(), cluster.ravel()), rel=1e-4)


def test_fits_of_the_model_have_kv_groups_for_clusters(home: Home) -> None:
    means = rows(home, "distance_means", "query", "layer", "head", "n")
    found = rows(home, "distance_fits_model", "measure", "axis", "query", "n")
    points = [
        (n, means[39, layer, head, n]["relative_distance"], 2 * layer + head // 2)
        for layer, head in product(range(LAYERS), range(HEADS))
        for n in fitted_n(40 - FIRST[2, layer])
    ]
    assert near(found["distance", "n", 39, None], line(*map(np.array, zip(*points, strict=True))))
    points = [
        (query + 1 - FIRST[index, layer], means[query, layer, head, 4]["relative_distance"], 2 * layer + head // 2)
        for (index, query), layer, head in product(enumerate(QUERIES), range(LAYERS), range(HEADS))
    ]
    assert near(found["distance", "n_keys", None, 4], line(*map(np.array, zip(*points, strict=True))))


# --- convergence ---


def shares_of(tensors: dict[str, np.ndarray], place: tuple[int, int, int]) -> np.ndarray:
    """``MEASURES`` in every sequence, (measure, sequence)."""
    found = [shares(head_of(tensors, *place, sequence)[0]) for sequence in range(SEQUENCES)]
    return np.array(found).T


def test_convergence_is_a_mean_over_sequences(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "convergence", "query", "layer", "head")
    assert set(found) == set(every_head())
    of_mean = 0.0
    for place, row in found.items():
        for name, numbers in zip(MEASURES, shares_of(tensors, place), strict=True):
            mean, error = mean_and_error(numbers.tolist())
            assert near(row, {name: mean, f"{name}_se": error}), place
        mean_weights = np.mean([head_of(tensors, *place, s)[0] for s in range(SEQUENCES)], axis=0)
        of_mean = max(of_mean, shares(mean_weights)[0] / row["effective_share"] - 1)
        assert row["n_keys"] == place[0] + 1 - FIRST[QUERIES.index(place[0]), place[1]]
    assert of_mean > 0.01  # mutation control: the number of mean weights is larger
    model = rows(home, "convergence_model", "query")
    for (query,), row in model.items():
        heads = np.array([shares_of(tensors, place).mean(axis=1) for place in every_head() if place[0] == query])
        sequences = np.array([shares_of(tensors, place) for place in every_head() if place[0] == query]).mean(axis=0)
        for index, name in enumerate(MEASURES):
            mean, error = mean_and_error(sequences[index].tolist())
            low, high = np.quantile(heads[:, index], (0.1, 0.9))
            assert near(row, {name: mean, f"{name}_se": error, f"{name}_p10": low, f"{name}_p90": high})
        assert (row["heads"], row["sequences"]) == (LAYERS * HEADS, SEQUENCES)


def test_fits_of_convergence_go_through_all_queries(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "convergence_fits", "measure", "layer", "head")
    keys = np.array([15.0, 36.0, 40.0])
    x, cluster = np.broadcast_arrays(keys[:, None], np.arange(SEQUENCES))
    for index, name in enumerate(MEASURES):
        y = np.array([shares_of(tensors, (query, 0, 2))[index] for query in QUERIES])
        assert near(found[name, 0, 2], line(x.ravel(), y.ravel(), cluster.ravel()), rel=1e-4)
    model = rows(home, "convergence_fits_model", "measure")
    points = [
        (query + 1 - FIRST[QUERIES.index(query), layer], shares_of(tensors, (query, layer, head))[0].mean(), pair)
        for query, layer, head in every_head()
        for pair in [2 * layer + head // 2]
    ]
    assert near(model[MEASURES[0],], line(*map(np.array, zip(*points, strict=True))), rel=1e-4)


# --- temperature ---


def test_selections_at_a_temperature_are_those_of_its_weights(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "temperature_means", "query", "layer", "head", "temperature", "n")
    wanted_n = {
        (query, layer): log_grid(query + 1 - FIRST[QUERIES.index(query), layer]).tolist()
        for query, layer, _ in every_head()
    }
    assert set(found) == {(*place, t, n) for place in every_head() for t in TEMPERATURES for n in wanted_n[place[:2]]}
    wrong = 0.0
    for query, layer, head in ((14, 1, 2), (35, 0, 1), (39, 1, 0)):
        heads = [head_of(tensors, query, layer, head, sequence) for sequence in range(SOME)]
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
            wanted |= {f"{name}_gain_se": mean_and_error(gain.tolist())[1] for name, gain in gains.items()}
            assert near(row, wanted), (query, layer, head, t, n)
            inverse = [(inverted(alpha, t), values) for alpha, values in heads]
            wrong = max(wrong, abs(np.mean([separation(*of_head, n)[3] for of_head in inverse]) - row["auc"]))
    assert wrong > 0.02  # mutation control


def test_weights_are_as_spread_as_at_that_temperature(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "temperature_concentration", "query", "layer", "head", "temperature")
    assert set(found) == {(*place, t) for place in every_head() for t in TEMPERATURES}
    for (query, layer, head, t), row in found.items():
        weights = [at(head_of(tensors, query, layer, head, sequence)[0], t) for sequence in range(SOME)]
        keys = weights[0].size
        of_t = np.array([shares(alpha) for alpha in weights]).mean(axis=0)
        wanted = {
            "effective_keys": of_t[0] * keys,
            "n_90": of_t[1] * keys,
            "largest_deviation": of_t[2],
            "top_weight": np.mean([alpha.max() / alpha.sum() for alpha in weights]),
            "underflowed": 0,
            "sequences": SOME,
        }
        assert near(row, wanted)


def test_sensitivity_is_the_norm_of_the_whole_jacobian(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "sensitivity", "sequence", "query", "layer", "head", "temperature")
    places = [(sequence, *place) for sequence in range(SEQUENCES) for place in every_head()]
    assert set(found) == {(*place, t) for place in places for t in TEMPERATURES}
    for (sequence, *place, t), row in found.items():
        alpha, _ = head_of(tensors, *place, sequence)
        norm = jacobian(alpha / alpha.sum(), t)
        assert row["spectral_norm"] == pytest.approx(norm, rel=1e-6)
        if t != 1:  # mutation control: without the factor 1/T
            assert abs(row["spectral_norm"] - t * norm) > 0.1 * norm


def test_without_a_temperature_of_1_there_are_no_gains(home: Home, tmp_path: Path) -> None:
    other = measured(tmp_path, several(2))
    study = OF_LIMITS.model_copy(update={"analysis": AnalysisSettings(temperatures=(0.5,), temperature_sequences=9)})
    making.summarise(other, NAME, study, ["temperature"])
    found = rows(other, "temperature_means", "query", "layer", "head", "temperature", "n")
    assert {row["auc_gain_se"] for row in found.values()} == {row["recall_gain_se"] for row in found.values()} == {None}
    assert {row["sequences"] for row in found.values()} == {2}  # all there are
    own = rows(home, "temperature_means", "query", "layer", "head", "temperature", "n")
    assert {key[3] for key in found} == {0.5}
    assert set(found) < set(own)


# --- norms of queries and keys ---


def test_the_logit_range_has_norms_beside_the_weights(home: Home, tensors: dict[str, np.ndarray]) -> None:
    found = rows(home, "logit_range", "sequence", "query", "layer", "head")
    assert set(found) == {(sequence, *place) for sequence in range(SEQUENCES) for place in every_head()}
    for (sequence, query, layer, head), row in found.items():
        alpha, _ = head_of(tensors, query, layer, head, sequence)
        p = alpha / alpha.sum()
        assert near(row, {"least_weight": p.min(), "largest_weight": p.max(), "n_keys": p.size, "underflowed": 0})
        assert row["key_norm"] == tensors["key_norm"][sequence, QUERIES.index(query), layer, head]
        assert row["logit_cap"] == (CAP if layer == 1 else None)


def test_keys_that_underflowed_and_tensors_without_norms(tmp_path: Path) -> None:
    (drawn,) = several(1)
    drawn["attention"][0, 0, 1, 3:5] = 0
    other = measured(tmp_path, [drawn])
    making.summarise(other, NAME, OF_LIMITS, ["logit_range"])
    found = rows(other, "logit_range", "sequence", "query", "layer", "head")
    assert {(row["query_norm"], row["key_norm"], row["logit_cap"]) for row in found.values()} == {(None, None, None)}
    row = found[0, 14, 0, 1]
    assert (row["least_weight"], row["underflowed"]) == (0, 2)
    assert found[0, 14, 0, 0]["least_weight"] > 0


def test_a_store_of_an_earlier_format_has_no_logit_range(tmp_path: Path) -> None:
    """Before norms were captured, stores had no such arrays; with them, the same study has norms."""
    found = measured(tmp_path, with_norms(several(1)))
    making.summarise(found, NAME, OF_LIMITS, ["logit_range"])
    now = rows(found, "logit_range", "sequence", "query", "layer", "head")
    assert not [row for row in now.values() if row["query_norm"] is None]
    places = [path for name in ("query_norm", "key_norm", "logit_cap") for path in tmp_path.rglob(name)]
    assert len(places) == 3
    for place in places:
        shutil.rmtree(place)
    making.make(found, NAME, ["logit_range"], OF_LIMITS, force=True)
    before = rows(found, "logit_range", "sequence", "query", "layer", "head")
    missing = {"query_norm": None, "key_norm": None, "logit_cap": None}
    assert before == {place: row | missing for place, row in now.items()}


# --- settings ---


@pytest.mark.parametrize(
    "given", [[], [1, 1], [0], [-1], [1 / 65], [65], ["hot"], [True], 1, [float("nan")], list(range(1, 18))]
)
def test_what_is_no_list_of_temperatures_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="list of 1 to 16 distinct numbers from 1/64 to 64"):
        AnalysisSettings(temperatures=given)


def test_temperatures_ascend() -> None:
    assert AnalysisSettings(temperatures=(2, 1 / 64, 64)).temperatures == (1 / 64, 2, 64)


# --- memory ---


def peak(rows: Iterable[object]) -> int:
    """The most memory that yields rows take, in bytes, each batch dropped before the next."""
    tracemalloc.start()
    for _ in rows:
        pass
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.usefixtures("home")  # what is compiled or imported once is there
def test_memory_keeps_within_the_bounds(tmp_path: Path) -> None:
    """Longer heads than those of the other tests."""
    longer = measured(tmp_path, with_norms(several(3, keys=320, head_dim=32)))
    sources = open_sources(longer, NAME, OF_LIMITS)
    sizes = sources.metrics.sizes
    assert peak(compute_distances(sources)) <= estimate_distances_bytes(sizes)
    assert peak(compute_convergence(sources)) <= estimate_convergence_bytes(sizes)
    with dask.config.set(scheduler="synchronous"):
        asked = estimate_temperature_bytes(sources.tensors.sizes, HEADS, 2, len(TEMPERATURES))
        everything = asked + 3 * 8 * 2 * HEADS * len(TEMPERATURES) * 6 * log_grid(320).size  # results and their rows
        assert peak(compute_temperature(sources)) <= everything + 2**20
