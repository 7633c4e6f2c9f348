"""What is measured of a layer: that of its heads one by one, of the keys that a query sees, within stated memory."""

from functools import partial

import numpy as np
import pytest

from geometry import selection_profile
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.grids import quantile_over_ln_n
from geometry.layers import CURVES, estimate_layer_bytes, measure_layer
from geometry.quantities import SELECTION, Concentration, OutputParts, list_declared
from geometry.selection import torch_scan
from geometry.selection.concentration import concentration
from geometry.selection.outputs import output_parts, selection_errors
from geometry.selection.scan import Keys
from tests.geometry.comparison import cosine_by_distance, cosines_with, sink_cosines
from tests.geometry.measured_studies import make_filled, measure_study
from tests.memory import trace

SEQUENCES, LAYERS, HEADS, KV_HEADS, KEYS, HEAD_DIM = 3, 2, 8, 4, 40, 6
QUERIES = (1, 17, KEYS - 1)
KAPPAS = (0.5, 50)


def study(keys: int = KEYS, queries: tuple[int, ...] = QUERIES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of queries that see everything up to their own position, value states, and first keys of 0."""
    rng = np.random.default_rng(0)
    attention = np.zeros((SEQUENCES, len(queries), LAYERS, HEADS, keys), np.float32)
    for index, query in enumerate(queries):
        attention[:, index, ..., : query + 1] = rng.dirichlet(np.ones(query + 1), size=(SEQUENCES, LAYERS, HEADS))
    values = rng.standard_normal((SEQUENCES, LAYERS, KV_HEADS, keys, HEAD_DIM)).astype(np.float32)
    return attention, values, np.zeros((SEQUENCES, len(queries), LAYERS), np.int32)


def windowed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same where a window of layer 1 hides all but the last 12 keys, and in sequence 2 all but the last."""
    attention, values, first_key = study()
    for index, query in enumerate(QUERIES):
        first_key[:, index, 1] = max(query - 11, 0)
        first_key[2, index, 1] = query
    hidden = np.arange(KEYS) < first_key[..., None]
    return np.where(hidden[:, :, :, None], 0, attention), values, first_key


def measure(
    attention: np.ndarray, values: np.ndarray, first_key: np.ndarray, queries: tuple[int, ...] = QUERIES
) -> dict[str, np.ndarray]:
    return measure_study(attention, values, first_key, queries, kappas=KAPPAS, scale="raw")


def test_heads_are_those_of_a_profile() -> None:
    attention, values, first_key = study()
    computed = measure(attention, values, first_key)
    for index, query in enumerate(QUERIES):
        grouped = attention[:, index, ..., : query + 1].reshape(SEQUENCES, LAYERS, KV_HEADS, HEADS // KV_HEADS, -1)
        seen = values[..., None, : query + 1, :]
        whole = selection_profile(grouped, seen, kappas=KAPPAS, scale="raw")
        for name in CURVES:
            found = computed[name][:, index]
            axes = (len(KAPPAS),) if "kappa" in SELECTION[name].axes else ()
            expected = getattr(whole, name).reshape(SEQUENCES, LAYERS, HEADS, *axes, query)
            assert found.dtype == SELECTION[name].dtype
            np.testing.assert_array_equal(found[..., :query], expected.astype(found.dtype), err_msg=name)
            np.testing.assert_array_equal(found[..., query:], SELECTION[name].fill, err_msg=name)
        for name, expected in vars(selection_errors(grouped, seen)).items():
            found = computed[name][:, index, ..., :query].reshape(expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
        parts = vars(output_parts(grouped, seen)) | vars(concentration(grouped, seen))
        parts |= {"weight_sum": whole.weight_sum}
        lowest = quantile_over_ln_n(whole.cos_last.astype(np.float32), 0.05).reshape(SEQUENCES, LAYERS, HEADS)
        np.testing.assert_array_equal(computed["cos_last_p05"][:, index], lowest)
        assert set(parts) == {*list_declared(OutputParts), *list_declared(Concentration), "weight_sum"}
        for name, expected in parts.items():
            found = computed[name][:, index].reshape(expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(computed["value_scale"][:, index], whole.value_scale[..., 0], rtol=1e-6)
    assert (computed["n_keys"] == np.array(QUERIES)[:, None] + 1).all()


def test_some_heads_of_a_layer_are_measured_as_with_the_others() -> None:
    attention, values, first_key = windowed()
    computed, group = measure(attention, values, first_key), HEADS // KV_HEADS
    for first, last in ((0, 1), (1, 4)):
        some = measure(attention[:, :, :, group * first : group * last], values[:, :, first:last], first_key)
        for name, array in some.items():
            axes = ("sequence", *SELECTION[name].axes)
            parts = {"head": slice(group * first, group * last), "kv_head": slice(first, last)}
            whole = computed[name][tuple(parts.get(axis, slice(None)) for axis in axes)]
            np.testing.assert_array_equal(array, whole, err_msg=name)


def test_cosines_of_keys_are_those_of_what_a_query_sees() -> None:
    attention, values, first_key = windowed()
    values[1, 0, 2, 0] = 0
    values[0, 1, 3, 17] = 0
    computed = measure(attention, values, first_key)
    np.testing.assert_array_equal(computed["cos_sink_of_keys"], cosines_with(values, 0).astype(np.float32))
    for sequence, index, layer in np.ndindex(first_key.shape):
        first, query = first_key[sequence, index, layer], QUERIES[index]
        seen, row = values[sequence, layer, :, first : query + 1], computed["cos_last_of_keys"][sequence, index, layer]
        np.testing.assert_array_equal(row[:, first : query + 1], cosines_with(seen, -1).astype(np.float32))
        assert np.isnan(row[:, :first]).all()
        assert np.isnan(row[:, query + 1 :]).all()
        rho = computed["rho_0_of_keys"][sequence, index, layer]
        wanted = sink_cosines(seen)[0] if first == 0 else np.full(KV_HEADS, np.nan)
        np.testing.assert_array_equal(rho, wanted.astype(np.float32))
    assert np.isnan(computed["cos_last_of_keys"][0, 1, 1, 3]).all(), "the last token's value state has norm 0"
    assert not (computed["rho_0_of_keys"][0, 1, 0] == computed["rho_0_of_keys"][0, 2, 0]).any()


def test_a_query_knows_nothing_of_what_comes_after_it() -> None:
    """Bit for bit what a study says whose context ends at the query."""
    attention, values, first_key = windowed()
    computed = measure(attention, values, first_key)
    for index, query in enumerate(QUERIES):
        only, stop = slice(index, index + 1), query + 1
        cut = measure(attention[:, only, ..., :stop], values[..., :stop, :], first_key[:, only], (query,))
        for name, array in cut.items():
            if name in {"mean_cosine", "rho_0", "rho_0_sd"}:
                continue  # of all positions
            whole = computed[name] if "query" not in SELECTION[name].axes else computed[name][:, only]
            if array.ndim > 3 and array.shape[-1] in {query, stop}:
                whole = whole[..., : array.shape[-1]]
            np.testing.assert_array_equal(array, whole, err_msg=f"{name} of query {query}")


def test_hidden_keys_are_no_tokens() -> None:
    attention, values, first_key = windowed()
    computed = measure(attention, values, first_key)
    for sequence, index, layer in np.ndindex(first_key.shape):
        first, query = first_key[sequence, index, layer], QUERIES[index]
        at, n = (sequence, index, layer), query + 1 - first
        assert computed["n_keys"][at] == n
        assert (computed["k_in"][at][:, n - 1 :] == -1).all()
        assert np.isnan(computed["r_min"][at][:, n - 1 :]).all()
        assert np.isnan(computed["norm_y_0"][at]).all() == (first > 0)
        weights, states = attention[at][0, first : query + 1], values[sequence, layer, 0, first : query + 1]
        parts = output_parts(weights, states, sink=first == 0)
        assert computed["norm_rest"][at][0] == pytest.approx(float(parts.norm_rest), rel=1e-6)
        assert computed["total_rest"][at][0] == pytest.approx(float(parts.total_rest), rel=1e-6)
        for name, expected in vars(concentration(weights, states, sink=first == 0)).items():
            assert computed[name][at][0] == pytest.approx(float(expected), rel=1e-6, nan_ok=True), name
        if n >= 2:
            alone = selection_profile(weights, states, sink=first == 0)
            np.testing.assert_allclose(computed["value_scale"][at][0], alone.value_scale, rtol=1e-6)
            np.testing.assert_array_equal(computed["k_out"][at][0, : n - 1], alone.k_out)
            assert np.isnan(computed["cos_sink"][at][0]).all() == (first > 0)


def test_mismatched_arrays_are_refused() -> None:
    attention, values, first_key = study()
    with pytest.raises(ValueError, match=r"values \(4, 40, 6\) do not match weights \(8, 39\)"):
        measure(attention[..., 1:], values, first_key)
    with pytest.raises(ValueError, match="do not match weights"):
        measure(attention[:, :, :, 1:], values, first_key)
    with pytest.raises(ValueError, match="the 3 first keys do not match the 2 queries"):
        measure(attention, values, first_key, (1, 17))
    with pytest.raises(ValueError, match="positions from 1 to 39, got"):
        measure(attention, values, first_key, (1, 17, KEYS))
    attention[0, 1, 0, 3, 2] = np.nan
    with pytest.raises(ValueError, match="must be rows"):
        measure(attention, values, first_key)


def test_norms_and_similarities_are_those_of_every_sequence() -> None:
    attention, values, first_key = study()
    values[1, 0, 2, 0] = 0
    computed = measure(attention, values, first_key)
    np.testing.assert_allclose(computed["value_norm"], np.linalg.norm(values.astype(float), axis=-1), rtol=1e-6)
    mean, spread = sink_cosines(values)
    for name, whole in {"mean_cosine": cosine_by_distance(values), "rho_0": mean, "rho_0_sd": spread}.items():
        np.testing.assert_array_equal(computed[name], whole.astype(np.float32))
    assert np.isnan(computed["rho_0"]).sum() == 1


def test_scale_free_bounds_are_those_of_every_head() -> None:
    attention, values, first_key = windowed()
    norms, computed = np.linalg.norm(values.astype(float), axis=-1), measure(attention, values, first_key)
    for sequence, index, layer, head in np.ndindex(*first_key.shape, HEADS):
        first, kv_head = first_key[sequence, index, layer], head // (HEADS // KV_HEADS)
        stop = QUERIES[index] + 1
        for name in ("precision_lower", "recall_lower"):
            row = computed[f"{name}_scale_free"][sequence, index, layer, head]
            assert np.isnan(row[stop - first - 1 :]).all()
            if stop - first >= 2:
                alone = scale_free_lower_bounds(
                    attention[sequence, index, layer, head, first:stop],
                    norms[sequence, layer, kv_head, first:stop],
                    HEAD_DIM,
                )
                np.testing.assert_allclose(row[: stop - first - 1], getattr(alone, name), rtol=1e-6, atol=1e-7)


def test_a_device_finds_what_the_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix of cosines for all queries of a KV head, of which each sees a part."""
    asked = []

    class Here(torch_scan.TorchScan):
        def __init__(self, keys: Keys, device: str) -> None:
            asked.append((device, len(keys.norm)))
            super().__init__(keys, "cpu")

    attention, values, first_key = windowed()
    computed = measure(attention, values, first_key)
    monkeypatch.setattr(torch_scan, "TorchScan", Here)
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

    def draw() -> np.ndarray:
        return np.full((HEADS, keys), 1 / keys, np.float32)

    for asked in (queries[:1], queries):  # what is imported and compiled only once has been before it is counted
        out = make_filled(sizes | {"query": len(asked)})
        _, peak = trace(partial(measure_layer, (draw() for _ in asked), values, [0] * len(asked), asked, out))
    bound = estimate_layer_bytes({"query": len(queries), "key": keys, "head_dim": head_dim}, HEADS, KV_HEADS)
    assert bound / 8 < peak + values.nbytes <= bound
