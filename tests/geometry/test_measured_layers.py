"""What is measured of a layer: that of its heads one by one, of the keys that a query sees, within stated memory."""

from functools import partial

import numpy as np
import pytest

from geometry import selection_profile
from geometry.assumptions.values import summarise_cosines
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.grids import quantile_over_ln_n
from geometry.layers import CURVES, estimate_layer_bytes, measure_layer
from geometry.quantities import SELECTION
from geometry.selection import torch_scan
from geometry.selection.concentration import concentration
from geometry.selection.outputs import output_parts, selection_errors
from geometry.selection.scan import Keys
from tests.geometry.comparison import cosine_by_distance, cosines_with
from tests.geometry.measured_studies import make_filled, measure_study
from tests.memory import trace

SEQUENCES, LAYERS, HEADS, KV_HEADS, KEYS, HEAD_DIM = 3, 2, 8, 4, 40, 6
QUERIES = (1, 17, KEYS - 1)
KAPPAS = (0.5, 50)


def draw_study() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, value states and first keys of queries that see everything up to their own position.

    But a window of layer 1 hides all but the last 12 keys, and in sequence 2 all but the last.
    """
    rng, first_key = np.random.default_rng(0), np.zeros((SEQUENCES, len(QUERIES), LAYERS), np.int32)
    attention = np.zeros((SEQUENCES, len(QUERIES), LAYERS, HEADS, KEYS), np.float32)
    for index, query in enumerate(QUERIES):
        attention[:, index, ..., : query + 1] = rng.dirichlet(np.ones(query + 1), size=(SEQUENCES, LAYERS, HEADS))
        first_key[:, index, 1] = max(query - 11, 0)
        first_key[2, index, 1] = query
    values = rng.standard_normal((SEQUENCES, LAYERS, KV_HEADS, KEYS, HEAD_DIM)).astype(np.float32)
    hidden = np.arange(KEYS) < first_key[..., None]
    return np.where(hidden[:, :, :, None], 0, attention), values, first_key


def sink_cosines(values: np.ndarray) -> np.ndarray:
    """ρ_0 of every head, and the spread of its cosines, (…, 2)."""
    return np.apply_along_axis(summarise_cosines, -1, cosines_with(values, 0))


def measure(attention: np.ndarray, values: np.ndarray, first_key: np.ndarray) -> dict[str, np.ndarray]:
    return measure_study(attention, values, first_key, QUERIES, kappas=KAPPAS, scale="raw")


def test_heads_are_those_of_what_a_query_sees() -> None:
    """Of every sequence, query and layer: in layer 1 a window hides keys, in sequence 2 all but the last one."""
    attention, values, first_key = draw_study()
    computed = measure(attention, values, first_key)
    for at in np.ndindex(first_key.shape):
        (sequence, index, layer), first = at, first_key[at]
        n, sink = QUERIES[index] + 1 - first, first == 0
        weights = attention[at][:, first : first + n].reshape(KV_HEADS, -1, n)
        seen = values[sequence, layer, :, None, first : first + n]
        expected = vars(output_parts(weights, seen, sink=sink)) | vars(concentration(weights, seen, sink=sink))
        if n >= 2:
            whole = selection_profile(weights, seen, kappas=KAPPAS, scale="raw", sink=sink)
            bounds = scale_free_lower_bounds(weights, np.linalg.norm(seen.astype(float), axis=-1), HEAD_DIM)
            expected |= vars(whole) | vars(selection_errors(weights, seen))
            expected |= {f"{name}_scale_free": array for name, array in vars(bounds).items()}
            expected["value_scale"] = whole.value_scale[:, 0]
            expected["cos_last_p05"] = quantile_over_ln_n(whole.cos_last.astype(np.float32), 0.05)
        assert computed["n_keys"][at] == n
        for name in {*CURVES, *expected}:
            found, by_n = computed[name][at], "n" in SELECTION[name].axes
            np.testing.assert_array_equal(found[..., n - 1 :] if by_n else (), SELECTION[name].fill, err_msg=name)
            found = found[..., : n - 1] if by_n else found
            if name in expected:
                wanted = expected[name].reshape(found.shape).astype(SELECTION[name].dtype)
                near = 0 if name in CURVES else 1e-6
                np.testing.assert_allclose(found, wanted, rtol=near, atol=near / 10, err_msg=name)


def test_norms_and_cosines_of_keys_are_those_of_what_a_query_sees() -> None:
    """And those of all keys are those of every sequence."""
    attention, values, first_key = draw_study()
    values[1, 0, 2, 0] = 0
    values[0, 1, 3, 17] = 0
    computed = measure(attention, values, first_key)
    np.testing.assert_allclose(computed["value_norm"], np.linalg.norm(values.astype(float), axis=-1), rtol=1e-6)
    mean, spread = np.moveaxis(sink_cosines(values), -1, 0)
    of_all = {"cos_sink_of_keys": cosines_with(values, 0), "mean_cosine": cosine_by_distance(values)}
    for name, whole in (of_all | {"rho_0": mean, "rho_0_sd": spread}).items():
        np.testing.assert_array_equal(computed[name], whole.astype(np.float32))
    assert np.isnan(computed["rho_0"]).sum() == 1
    for sequence, index, layer in np.ndindex(first_key.shape):
        first, query = first_key[sequence, index, layer], QUERIES[index]
        seen, row = values[sequence, layer, :, first : query + 1], computed["cos_last_of_keys"][sequence, index, layer]
        np.testing.assert_array_equal(row[:, first : query + 1], cosines_with(seen, -1).astype(np.float32))
        assert np.isnan(row[:, :first]).all()
        assert np.isnan(row[:, query + 1 :]).all()
        rho = computed["rho_0_of_keys"][sequence, index, layer]
        wanted = sink_cosines(seen)[..., 0] if first == 0 else np.full(KV_HEADS, np.nan)
        np.testing.assert_array_equal(rho, wanted.astype(np.float32))
    assert np.isnan(computed["cos_last_of_keys"][0, 1, 1, 3]).all(), "the last token's value state has norm 0"
    assert not (computed["rho_0_of_keys"][0, 1, 0] == computed["rho_0_of_keys"][0, 2, 0]).any()


def test_a_device_finds_what_the_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix of cosines for all queries of a KV head, of which each sees a part."""
    asked, scans = [], torch_scan.TorchScan

    def scan_here(keys: Keys, device: str) -> torch_scan.TorchScan:
        asked.append((device, len(keys.norm)))
        return scans(keys, "cpu")

    attention, values, first_key = draw_study()
    computed = measure(attention, values, first_key)
    monkeypatch.setattr(torch_scan, "TorchScan", scan_here)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    settings = {"kappas": KAPPAS, "scale": "raw", "device": "cuda:1"}
    for name, array in measure_study(attention, values, first_key, QUERIES, **settings).items():
        np.testing.assert_allclose(array, computed[name], rtol=1e-6, atol=1e-7, err_msg=name)
    assert asked == [("cuda:1", KEYS)] * (SEQUENCES * LAYERS * KV_HEADS)


@pytest.mark.parametrize(("keys", "head_dim"), [(512, 64), (96, 256)])
def test_memory_is_bounded(keys: int, head_dim: int) -> None:
    rng, queries = np.random.default_rng(1), [keys // 2, *range(keys - 8, keys)]
    values = rng.standard_normal((KV_HEADS, keys, head_dim)).astype(np.float32)
    sizes = {"query": len(queries), "head": HEADS, "kv_head": KV_HEADS, "key": keys, "n": queries[-1], "kappa": 1}
    for asked in (queries[:1], queries):  # what is imported and compiled only once has been before it is counted
        out = make_filled(sizes | {"query": len(asked)})
        weights = (np.full((HEADS, keys), 1 / keys, np.float32) for _ in asked)
        _, peak = trace(partial(measure_layer, weights, values, [0] * len(asked), asked, out))
    bound = estimate_layer_bytes({"query": len(queries), "key": keys, "head_dim": head_dim}, HEADS, KV_HEADS)
    assert bound / 8 < peak + values.nbytes <= bound
