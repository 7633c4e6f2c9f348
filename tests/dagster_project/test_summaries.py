"""The assets between metrics and warehouse: their numbers beside literal ones, and when they are rebuilt."""

import gc
import math
import tracemalloc
from collections.abc import Callable
from itertools import count, permutations, product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis import chance, fits, passes, regimes, temperature, values
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from geometry.assumptions.decay import fit_decay
from geometry.assumptions.phases import fit_phases
from geometry.bounds.lower import INGREDIENTS, Ingredients, lower_bounds, margin
from geometry.grids import log_grid
from geometry.quantities import SELECTION
from geometry.statistics.intervals import average_known
from storage.errors import UserError
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.drawn_study import (
    FIRST,
    NAME,
    PLACES,
    QUERIES,
    SIZES,
    STUDY,
    measured,
    read_tensor,
    rows,
    several,
)
from tests.dagster_project.intervals import DIFFERENCE, SHARE, columns, near, of_mean
from tests.geometry.measured_studies import measure_study
from tests.geometry.oracle import exact_errors

SCORES = {"f_r_max": "precision", "f_r_min": "recall"}  # The metric that each F-score follows from


def test_a_store_holds_what_its_queries_and_sequences_have_together(drawn: Home) -> None:
    """Bit for bit, though each is measured by itself."""
    tensors = SequenceStore.open(drawn.tensors(NAME), TENSORS)
    attention, values, first_key = (np.asarray(tensors.array(name)[:]) for name in ("attention", "values", "first_key"))
    settings = {"kappas": STUDY.analysis.kappas, "scale": STUDY.analysis.scale}
    together = measure_study(attention, values, first_key, QUERIES, **settings)
    store = making.open_metrics(drawn, NAME, STUDY)
    assert {"learned_sink", *together} == set(SELECTION)
    for name, array in together.items():
        np.testing.assert_array_equal(np.asarray(store.array(name)[:]), array, err_msg=name)


def vary(norms: np.ndarray) -> float:
    """Coefficient of variation over positions of the expected norm: covariances of two different sequences."""
    pairs = [np.cov(one, other, ddof=0)[0, 1] for one, other in permutations(norms, 2)]
    return float(np.sqrt(max(np.mean(pairs), 0)) / norms.mean())


def test_norms_are_means_over_sequences_of_all_positions_but_the_sinks(drawn: Home) -> None:
    found = {(row["layer"], row["kv_head"]): row for row in rows(drawn, "assumption_norms")}
    of_sequences = rows(drawn, "assumption_norms_by_sequence")
    assert list(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for place, row in found.items():
        norms = np.linalg.norm(read_tensor(drawn, "values")[:, *place], axis=-1)
        others = norms[:, 1:]
        parts = {
            "c": np.median(others, axis=1),
            "lambda_sink": norms[:, 0] / np.median(others, axis=1),
            "cv_within_sequence": others.std(axis=1) / others.mean(axis=1),
        }
        wanted = {"cv_of_mean_norm": np.std(others.mean(axis=0)) / np.mean(others), "sequences": 5}
        for name in ("c", "lambda_sink"):
            wanted |= columns(name, of_mean(parts[name], (0, np.inf)))
        wanted |= {"cv_within_sequence": parts["cv_within_sequence"].mean(), "cv_of_expected_norm": vary(others)}
        assert near(row, wanted, rel=1e-6)
        assert row["status"] == "ok"
        parts["cv_without_sequence"] = np.array([vary(np.delete(others, one, axis=0)) for one in range(5)])
        mine = [one for one in of_sequences if (one["layer"], one["kv_head"]) == place]
        for sequence, one in enumerate(mine):
            assert near(one, {name: part[sequence] for name, part in parts.items()} | {"sequence": sequence}, rel=1e-6)
        assert not near(row, {"c": np.median(others)}, rel=1e-4)  # mutation control: that of all sequences at once


def cosines(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosine by distance, (key,), and cosines with the sink, (key - 1,), of one sequence: literally."""
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-300)
    gram = unit[1:] @ unit[1:].T
    mean = [np.diagonal(gram, k).mean() for k in range(len(gram))]
    return np.array([*mean, np.nan]), unit[1:] @ unit[0]


def test_similarity_is_fitted_to_the_mean_over_sequences(drawn: Home) -> None:
    found = {(row["layer"], row["kv_head"]): row for row in rows(drawn, "assumption_similarity")}
    values, model = read_tensor(drawn, "values"), []
    for (layer, kv_head), row in found.items():
        curves, sinks = zip(*(cosines(values[s, layer, kv_head]) for s in range(5)), strict=True)
        fit = fit_decay(np.mean(curves, axis=0))
        model.append(np.mean(curves, axis=0))
        rho = columns("rho_0", of_mean([sink.mean() for sink in sinks], DIFFERENCE))
        rho |= {"rho_0_sd": np.mean([sink.std() for sink in sinks])}
        if (layer, kv_head) == (0, 1):  # its sink has no direction
            rho = dict.fromkeys(rho, np.nan)
        assert near(row, {"beta": fit.beta, "mae": fit.mae} | rho, rel=1e-4, abs_=1e-6)
    (whole,) = rows(drawn, "assumption_similarity_model")
    assert whole["beta"] == pytest.approx(fit_decay(np.mean(model, axis=0)).beta, rel=1e-4)
    assert whole["kv_heads"] == 4


def nudge(fit: Callable[[np.ndarray], Any], curves: np.ndarray, parameter: str) -> np.ndarray:
    """How much faster a parameter moves as each sequence weighs a little more, of refits."""
    small, mean = 1e-4, curves.mean(axis=0)
    up, down = ([getattr(fit(mean + sign * small * (one - mean)), parameter) for one in curves] for sign in (1, -1))
    return (np.array(up) - np.array(down)) / (2 * small)


def reach(moves: np.ndarray) -> float:
    """Half the width of the interval of a parameter with these moves: t times the infinitesimal jackknife's error."""
    return float(stats.t.ppf(0.975, len(moves) - 1) * np.sqrt((moves**2).sum() / (len(moves) * (len(moves) - 1))))


def has_reach(row: dict[str, Any], name: str, moves: np.ndarray) -> bool:
    """Whether the interval of a parameter is that of its moves."""
    value = row[name]
    if name in {"p_base", "p_sink"}:  # of a logarithm
        wanted = [value * np.exp(sign * reach(moves / value)) for sign in (-1, 1)]
    else:
        wanted = [value + sign * reach(moves) for sign in (-1, 1)]
    return [row[f"{name}_low"] - value, row[f"{name}_high"] - value] == pytest.approx(
        [end - value for end in wanted], rel=1e-2
    )


def test_intervals_of_fits_are_those_of_refits_with_one_sequence_weighing_more(drawn: Home) -> None:
    values, weights = read_tensor(drawn, "values"), read_tensor(drawn, "attention")
    row = rows(drawn, "assumption_similarity")[2]
    curves = np.array([cosines(values[s, 1, 0])[0] for s in range(5)])
    for name in ("beta", "floor"):
        assert has_reach(row, name, nudge(fit_decay, curves, name)), name
    of_sequences = rows(drawn, "assumption_similarity_by_sequence")
    pseudo = [one for one in of_sequences if (one["layer"], one["kv_head"]) == (1, 0)]
    for name in ("floor", "mae"):
        wanted = row[name] + nudge(fit_decay, curves, name)
        assert [one[name] for one in pseudo] == pytest.approx(wanted, rel=1e-2)
    last = [row for row in rows(drawn, "assumption_weights") if row["query"] == 39]
    assert (last[5]["layer"], last[5]["head"], last[5]["variant"]) == (1, 1, "growth")
    curves = weights[:, -1, 1, 1, 7:]
    for name in ("eta_growth", "p_base"):
        assert has_reach(last[5], name, nudge(lambda curve: fit_phases(curve, first=7), curves, name)), name
    assert last[5]["p_sink_low"] is None
    sink = weights[:, -1, 0, 2, 0]
    assert has_reach(last[2], "p_sink", sink - sink.mean())
    for index, whole in enumerate(rows(drawn, "assumption_weights_model")):
        curves = of_model(weights, index)
        assert (whole["query"], whole["variant"], whole["heads"]) == (QUERIES[index], "growth", 8)
        assert has_reach(whole, "eta_growth", nudge(fit_phases, curves, "eta_growth"))
        assert not has_reach(whole, "eta_growth", 1.05 * nudge(fit_phases, curves, "eta_growth"))  # mutation control


def of_model(weights: np.ndarray, query: int) -> np.ndarray:
    """The model's mean weights at a query, by its index, (sequence, key): of the heads that see a key."""
    hidden = np.where(np.arange(40) < FIRST[query, :, None, None], np.nan, weights[:, query])
    found: np.ndarray = np.nanmean(hidden, axis=(1, 2))[:, : QUERIES[query] + 1]
    return found


def test_the_weights_of_the_model_are_fitted_again_without_each_sequence(drawn: Home) -> None:
    curves, found = of_model(read_tensor(drawn, "attention"), -1), rows(drawn, "assumption_weights_by_sequence")
    assert [row["sequence"] for row in found] == [*range(5)]
    for row in found:
        fit = fit_phases(np.delete(curves, row["sequence"], axis=0).mean(axis=0))
        bic = [
            min(getattr(fit, f"bic_{name}") for name in names) for names in (("plateau", "growth"), ("tied", "untied"))
        ]
        wanted = {name: getattr(fit, name) for name in ("p_sink", "p_base", "r2_log")}
        assert near(row, wanted | {"oscillation": (bic[0] - bic[1]) / fit.effective_points}, rel=1e-4)


def test_weights_are_fitted_where_the_mask_shows_them(drawn: Home) -> None:
    found = rows(drawn, "assumption_weights")
    places = [(QUERIES[query], layer, head) for query, layer in PLACES for head in range(4)]
    assert [(row["query"], row["layer"], row["head"]) for row in found] == places
    weights = read_tensor(drawn, "attention").mean(axis=0)
    for row in found:
        query, layer, head = QUERIES.index(row["query"]), row["layer"], row["head"]
        first = int(FIRST[query, layer])
        fit = fit_phases(weights[query, layer, head, first : row["query"] + 1], first=first)
        for name in ("status", "variant", "positions", "t_1", "t_2"):
            assert row[name] == getattr(fit, name), name
        assert row["positions"] == row["query"] + 1 - max(first, 1)
        assert row["p_base"] == pytest.approx(fit.p_base, rel=1e-6)
        assert (row["p_sink"] is None) == (first > 0)
        assert row["sequences"] == 5


def read_counts(home: Home) -> tuple[np.ndarray, np.ndarray]:
    """K_in and K_out of the metrics, (sequence, query, layer, head, N)."""
    metrics = making.open_metrics(home, NAME, STUDY)
    k_in, k_out = (np.asarray(metrics.array(name)[:], np.float64) for name in ("k_in", "k_out"))
    return k_in, k_out


def measure_counts(k_in: np.ndarray, k_out: np.ndarray, n: int, n_keys: int) -> dict[str, np.ndarray]:
    """The metrics of a selection of n."""
    precision, recall = n / (n + k_out), k_in / n
    return {
        "precision": precision,
        "recall": recall,
        "f_r_max": 2 * precision / (1 + precision),
        "f_r_min": 2 * recall / (1 + recall),
        "specificity": 1 - k_out / (n_keys - n),
    }


def test_means_of_the_selection_are_those_of_the_counts(drawn: Home) -> None:
    (k_in, k_out), found = read_counts(drawn), rows(drawn, "selection_means")
    assert [(row["query"], row["layer"], row["head"], row["n"]) for row in found] == [
        (QUERIES[query], layer, head, n)
        for query, layer in PLACES
        for head in range(4)
        for n in range(1, QUERIES[query] + 1 - FIRST[query, layer])
    ]
    clipped = 0
    for row in found:
        query, layer = QUERIES.index(row["query"]), row["layer"]
        at, wanted = (slice(None), query, layer, row["head"], row["n"] - 1), {}
        for name, numbers in measure_counts(k_in[at], k_out[at], row["n"], count_keys(query, layer)).items():
            wanted |= columns(name, of_mean(numbers, SHARE))
        assert near(row, wanted, rel=1e-5, abs_=1e-6)
        clipped += sum(wanted[f"{name}_high"] == 1 > wanted[name] for name in ("precision", "recall"))
    assert clipped > 100  # intervals that would reach beyond a share


def count_keys(query: int, layer: int) -> int:
    """Keys of a query, by its index."""
    return QUERIES[query] + 1 - int(FIRST[query, layer])


def test_means_of_the_model_are_those_of_its_heads_in_every_sequence(drawn: Home) -> None:
    (k_in, k_out), model = read_counts(drawn), rows(drawn, "selection_means_model")
    assert [(row["query"], row["n"]) for row in model] == [(query, n) for query in QUERIES for n in range(1, query + 1)]
    heads = [8] * 14 + [8] * 32 + [4] * 3 + [8] * 32 + [4] * 7
    assert [row["heads"] for row in model] == heads
    narrower = 0
    for row in model:
        query, n = QUERIES.index(row["query"]), row["n"]
        of_layers = [
            measure_counts(k_in[:, query, layer, :, n - 1], k_out[:, query, layer, :, n - 1], n, keys)
            for layer in range(2)
            if n < (keys := count_keys(query, layer))
        ]
        for name in of_layers[0]:
            of_heads = np.concatenate([of_layer[name] for of_layer in of_layers], axis=1)
            assert near(row, columns(name, of_mean(of_heads.mean(axis=1), SHARE)), abs_=1e-9)
            narrower += not near(row, columns(name, of_mean(of_heads.ravel(), SHARE)), rel=0.05)
    assert narrower > 50  # mutation control: heads are no sample
    levels = [(row["sequence"], row["query"], row["layer"], row["head"]) for row in rows(drawn, "head_levels")]
    assert sorted(levels) == [*product(range(5), QUERIES, range(2), range(4))]  # of blocks of some sequences


def count_errors_below(head: tuple[int, int, int, int], weights: np.ndarray, values: np.ndarray, limit: float) -> int:
    """Smallest N from which on the error of renormalised weights stays below a limit."""
    sequence, query, layer, number = head
    seen = slice(int(FIRST[query, layer]), QUERIES[query] + 1)
    errors = exact_errors(weights[head][seen], values[sequence, layer, number // 2, seen])["error_renormalised"]
    return next(n for n in range(1, len(errors) + 2) if (errors[n - 1 :] < limit).all())


@pytest.mark.one_case
@pytest.mark.parametrize("share", [90, 50, 99, "renormalised_10"])
def test_keys_of_a_share_of_the_weight_are_means_with_intervals(drawn: Home, share: int | str) -> None:
    weights, values, name = read_tensor(drawn, "attention"), read_tensor(drawn, "values"), f"n_{share}"
    counted = np.zeros((5, 3, 2, 4))
    for head in np.ndindex(counted.shape):
        if isinstance(share, int):
            held = np.sort(weights[head])[::-1].cumsum()
            counted[head] = 1 + np.count_nonzero(held < share / 100 * held[-1])
        else:
            counted[head] = count_errors_below(head, weights, values, 0.1)
    heads, layers, model = (rows(drawn, f"key_budgets{of}") for of in ("", "_layer", "_model"))
    assert (len(heads), len(layers), len(model)) == (3 * 2 * 4, 3 * 2, 3)
    least = (1.0, np.inf)
    for row in heads:
        query, layer = QUERIES.index(row["query"]), row["layer"]
        assert near(row, columns(name, of_mean(counted[:, query, layer, row["head"]], least)))
        assert row["n_keys"] == count_keys(query, layer)
    for row in layers:
        query, layer = QUERIES.index(row["query"]), row["layer"]
        assert near(row, columns(name, of_mean(counted[:, query, layer].mean(axis=1), least)))
        assert (row["n_keys"], row["heads"], row["sequences"]) == (count_keys(query, layer), 4, 5)
    pooled = 0
    for row in model:
        query = QUERIES.index(row["query"])
        assert near(row, columns(name, of_mean(counted[:, query].mean(axis=(1, 2)), least)))
        pooled += near(row, columns(name, of_mean(counted[:, query].ravel(), least)), rel=1e-3)
        assert row["n_keys"] == (count_keys(query, 0) + count_keys(query, 1)) / 2
    assert pooled < 3 or share == 50  # mutation control: heads are no sample; half of the weight is on one key


def test_top_keys_are_those_of_largest_weight_with_their_distances_from_the_sum(drawn: Home) -> None:
    weights, values, found = read_tensor(drawn, "attention"), read_tensor(drawn, "values"), rows(drawn, "top_keys")
    places = {(row["sequence"], row["query"], row["layer"], row["head"]): [] for row in found}
    for row in found:
        places[row["sequence"], row["query"], row["layer"], row["head"]].append(row)
    assert len(places) == 5 * 3 * 2 * 4
    k_in, _ = read_counts(drawn)
    n = 4
    for (sequence, position, layer, head), of_head in places.items():
        query = QUERIES.index(position)
        first = int(FIRST[query, layer])
        alpha, v = weights[sequence, query, layer, head], values[sequence, layer, head // 2]
        order = sorted(range(first, position + 1), key=lambda key: (-alpha[key], key))
        y = alpha[:, None] * v
        s = y[order[:n]].sum(axis=0)
        assert [row["rank"] for row in of_head] == [*range(1, 1 + min(16, len(order)))]
        assert [row["position"] for row in of_head] == order[:16]
        for row in of_head:
            key = row["position"]
            distance = np.linalg.norm(s - y[key]) / np.linalg.norm(s)
            wanted = {"weight": alpha[key], "contribution": np.linalg.norm(y[key]), "relative_distance": distance}
            assert near(row, wanted, rel=1e-5)
            assert row["n"] == n
        counted = k_in[sequence, query, layer, head]
        assert sum(row["within_r_min"] for row in of_head) == counted[n - 1]
        for size in range(1, min(16, len(order) - 1) + 1):
            assert sum(row["within_r_min_at"] >> (size - 1) & 1 for row in of_head) == counted[size - 1]
        assert [row["within_r_min_at"] >> (n - 1) & 1 for row in of_head] == [row["within_r_min"] for row in of_head]
    assert not near(row, {"relative_distance": np.linalg.norm(s - y[order[0]]) / np.linalg.norm(s)}, rel=1e-2)


def test_bounds_of_heads_are_means_over_sequences(drawn: Home) -> None:
    """They are those of the bounds of selections, each of which ``tests.geometry`` reads slowly."""
    metrics, kappas = making.open_metrics(drawn, NAME, STUDY), STUDY.analysis.kappas
    found = rows(drawn, "bound_means")
    assert len(found) == (len(kappas) + 1) * sum(4 * (count_keys(query, layer) - 1) for query, layer in PLACES)
    order = [(row["query"], row["layer"], row["head"], row["family"], row["kappa"] or 0, row["n"]) for row in found]
    assert order == sorted(order)
    names = [f"{metric}_{kind}" for metric in SCORES.values() for kind in ("upper", "lower_scale_free")]
    arrays = {name: np.asarray(metrics.array(name)[:], np.float64) for name in (*INGREDIENTS, *names, "value_scale")}
    apart = 0
    for row in found:
        query, layer, head, n = QUERIES.index(row["query"]), row["layer"], row["head"], row["n"]
        keys, at = count_keys(query, layer), (slice(None), query, layer, head, n - 1)
        if row["family"] == "scale_free":
            precision, recall = (
                average_known(arrays[f"{name}_lower_scale_free"][at]) for name in ("precision", "recall")
            )
            chord = 1 - (1 - precision) / (1 + n / keys)
            of_precision = {"precision_lower": precision, "f_r_max_lower": chord}
            assert near(row, of_precision | dict.fromkeys(("recall_lower", "f_r_min_lower"), recall), rel=1e-12)
            assert row["scale"] is row["kappa"] is row["margin"] is row["recall_upper"] is None
            continue
        scale = arrays["value_scale"][:, query, layer, head // 2]
        parts = Ingredients(**{name: arrays[name][at] for name in INGREDIENTS})
        given = {"size": n, "n_keys": keys, "head_dim": SIZES["head_dim"], "unit": scale, "kappa": row["kappa"]}
        each, lowers = {"margin": margin(parts, scale)}, lower_bounds(parts, **given)
        for (score, metric), lower in zip(SCORES.items(), lowers, strict=True):
            upper = arrays[f"{metric}_upper"][..., kappas.index(row["kappa"]), :][at]
            for end, bound in {"lower": lower, "upper": upper}.items():
                each |= {f"{metric}_{end}": bound, f"{score}_{end}": 2 * bound / (1 + bound)}
        assert near(row, {name: average_known(numbers) for name, numbers in each.items()}, rel=1e-12)
        assert row["scale"] == STUDY.analysis.scale
        apart += not near(row, {"margin": each["margin"][0]}, rel=1e-3)
    assert apart > 100  # mutation control: one sequence
    assert {row["premise_share"] in (None, 0) for row in found} == {True, False}


def test_nothing_is_computed_from_stale_tables(drawn: Home) -> None:
    later = "parameter_effects"
    with (
        making.at_version("assumption_norms", 99),
        pytest.raises(UserError, match=f"tables of 'assumption_norms' .* run: attention-geometry run {NAME}"),
    ):
        making.make(drawn, NAME, [later], STUDY, force=True)
    assert making.summarise(drawn, NAME, STUDY, [later])[later].metadata["rows of parameter_effects"] == 11


KEYS, HEAD_DIM, FEW, MANY = 192, 48, 6, 24


def peaks(root: Path, sequences: int) -> dict[str, int]:
    """The most memory that each asset takes, in bytes; six sequences are held against nulls and looked at again."""
    analysis = {"nulls": {"sequences": FEW}, "temperature_sequences": FEW}
    study = Study.model_validate(STUDY.model_dump() | {"analysis": analysis})
    home, found = measured(root, several(sequences, KEYS, HEAD_DIM)), {}
    for asset in making.TABLES:
        gc.freeze()  # what is there already is not looked through each time
        tracemalloc.start()
        with dask.config.set(num_workers=1):  # which tasks meet on two threads is chance
            making.summarise(home, NAME, study, [asset])
        found[asset] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.unfreeze()
    return found


@pytest.mark.long  # every asset of two larger studies, traced
@pytest.mark.usefixtures("drawn")  # what is compiled or imported once is there
def test_memory_does_not_grow_with_the_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the sequences, read in blocks of one.

    Only means over heads of every sequence take more, and what reads a layer of all sequences: fits, and bounds on a
    grid of N. Most of what reading leaves is collected. Of a part of metrics the end is read at once, up to 1 MiB.
    """
    read, reads = SequenceStore.read, count()

    def collect(*asked: Any) -> Any:
        if next(reads) % 10 == 0:
            gc.collect()
        return read(*asked)

    monkeypatch.setattr(SequenceStore, "read", collect)
    for module in (chance, passes, regimes, temperature, values):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    few, many = peaks(tmp_path / "few", FEW), peaks(tmp_path / "many", MANY)
    more, of_model = MANY - FEW, 8 * (sum(QUERIES[:2]) + 2 + KEYS) + 34 * KEYS  # bytes: sums, and their moments
    grown = {
        "assumption_similarity": 8 * 4 * 2 * KEYS,
        "assumption_weights": 8 * 4 * 4 * KEYS,
        "selection_means": 7 * of_model + 2 * len(STUDY.analysis.kappas) * 8 * len(log_grid(KEYS)) * (3 * 4 * 2 + 4),
    }
    stored = 4 * 2 * KEYS * (3 * 4 + 2 * HEAD_DIM)  # weights and value states of a sequence
    for step, peak in few.items():
        assert many[step] - peak <= more * (grown.get(step, 0) + stored / 3) + 2**20, step


def test_an_oscillation_that_could_not_be_fitted_has_no_strength() -> None:
    bic = {"bic_plateau": 10.0, "bic_growth": 8.0, "bic_tied": 5.0, "bic_untied": math.nan, "effective_points": 2.0}
    assert fits.measure_oscillation(bic) == 1.5
    assert math.isnan(fits.measure_oscillation(bic | {"bic_tied": math.nan}))


@pytest.mark.parametrize("way", [-2000.0, -1.0, 0.0, 1.0, 2000.0])
def test_ends_of_an_interval_of_a_weight_are_weights(way: float) -> None:
    weight = np.array([0, 1e-20, 0.3, math.nan])
    scaled = fits._scale_weight(weight, np.full(4, way))
    assert np.isnan(scaled[3])
    assert scaled[0] == 0
    assert ((scaled[1:3] > 0) & (scaled[1:3] <= 1)).all()
    assert ((scaled[:3] - weight[:3]) * way >= 0).all()
    if abs(way) == 1:
        assert scaled[1] == pytest.approx(1e-20 * math.exp(way))
