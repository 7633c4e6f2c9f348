"""The Dask layer: lazy, equal to the whole, bounded by its blocks."""

import tracemalloc
from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest

from geometry import selection_profile
from geometry.assumptions.similarity import cosine_by_distance, cosines_with, sink_cosines
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.lazy.selection import (
    PER_HEAD,
    PER_KAPPA,
    PROFILE,
    build_scale_free_bounds,
    build_selection_arrays,
    build_similarities,
    estimate_block_bytes,
    estimate_similarity_bytes,
    value_norms,
)
from geometry.quantities import SELECTION
from geometry.selection.concentration import concentration
from geometry.selection.parts import output_parts
from geometry.statistics.quantiles import quantile_over_ln_n

SEQUENCES, LAYERS, HEADS, KV_HEADS, KEYS, HEAD_DIM = 3, 2, 8, 4, 40, 6
QUERIES = (1, 17, KEYS - 1)
KAPPAS = (0.5, 50)
MEASURED = 48
"""Sequences of the study whose memory is watched."""


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


def lazily(
    attention: np.ndarray,
    values: np.ndarray,
    first_key: np.ndarray,
    queries: tuple[int, ...] = QUERIES,
    *,
    kv_chunk: int = KV_HEADS,
) -> dict[str, da.Array]:
    return build_selection_arrays(
        da.from_array(attention, chunks=(1, 1, 1, -1, -1)),
        da.from_array(values, chunks=(1, 1, kv_chunk, -1, -1)),
        da.from_array(first_key, chunks=(1, -1, -1)),
        queries,
        kappas=KAPPAS,
        scale="raw",
    )


@pytest.fixture
def no_computing() -> Iterator[None]:
    """A scheduler that refuses to work."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        msg = "something computed while the graph was built"
        raise AssertionError(msg)

    with dask.config.set(scheduler=refuse):
        yield


@pytest.mark.usefixtures("no_computing")
def test_building_computes_nothing() -> None:
    attention, values, first_key = study()
    arrays = lazily(attention, values, first_key)
    norms = value_norms(da.from_array(values))
    build_similarities(da.from_array(values))
    build_scale_free_bounds(
        da.from_array(attention), norms, da.zeros(first_key.shape, dtype=int), QUERIES, head_dim=HEAD_DIM
    )
    assert arrays["k_in"].shape == (SEQUENCES, len(QUERIES), LAYERS, HEADS, KEYS - 1)
    with pytest.raises(AssertionError, match="something computed"):
        arrays["k_in"].compute()


def test_arrays_are_those_that_are_declared() -> None:
    sizes = {"query": len(QUERIES), "layer": LAYERS, "head": HEADS, "kv_head": KV_HEADS, "key": KEYS}
    sizes |= {"n": QUERIES[-1], "kappa": len(KAPPAS)}
    attention, values, first_key = study()
    norms = value_norms(da.from_array(values))
    bounds = build_scale_free_bounds(
        da.from_array(attention), norms, da.from_array(first_key), QUERIES, head_dim=HEAD_DIM
    )
    arrays = (
        lazily(attention, values, first_key)
        | bounds
        | build_similarities(da.from_array(values))
        | {"value_norm": norms}
    )
    assert set(arrays) == set(SELECTION) - {"learned_sink"}, "a model's own number, captured with the weights"
    for name, array in arrays.items():
        axes = SELECTION[name].axes
        assert array.shape == (SEQUENCES, *(sizes[axis] for axis in axes)), name
        assert str(array.dtype) == SELECTION[name].dtype, name


def test_n_runs_to_the_last_query_not_to_the_end_of_the_context() -> None:
    attention, values, first_key = study(queries=(3, 20))
    arrays = lazily(attention, values, first_key, (3, 20))
    computed = dask.compute({name: arrays[name] for name in ("k_in", "recall_upper", "cos_last_of_keys")})[0]
    assert computed["k_in"].shape[-1] == computed["recall_upper"].shape[-1] == 20
    assert (computed["k_in"][:, 1] >= 0).all()
    assert computed["cos_last_of_keys"].shape[-1] == KEYS


@pytest.mark.one_case
@pytest.mark.parametrize("kv_chunk", [1, 2, 4])
def test_blocks_equal_the_whole(kv_chunk: int) -> None:
    attention, values, first_key = study()
    arrays = lazily(attention, values, first_key, kv_chunk=kv_chunk)
    assert arrays["k_in"].npartitions == SEQUENCES * len(QUERIES) * LAYERS * (KV_HEADS // kv_chunk)
    computed = dask.compute(arrays)[0]
    for index, query in enumerate(QUERIES):
        grouped = attention[:, index, ..., : query + 1].reshape(SEQUENCES, LAYERS, KV_HEADS, HEADS // KV_HEADS, -1)
        seen = values[..., None, : query + 1, :]
        whole = selection_profile(grouped, seen, kappas=KAPPAS, scale="raw")
        for name in (*PROFILE, *PER_KAPPA):
            found = computed[name][:, index]
            axes = (len(KAPPAS),) if name in PER_KAPPA else ()
            expected = getattr(whole, name).reshape(SEQUENCES, LAYERS, HEADS, *axes, query)
            assert found.dtype == SELECTION[name].dtype
            np.testing.assert_array_equal(found[..., :query], expected.astype(found.dtype), err_msg=name)
            np.testing.assert_array_equal(found[..., query:], SELECTION[name].fill, err_msg=name)
        parts = vars(output_parts(grouped, seen)) | vars(concentration(grouped, seen))
        parts |= {"weight_sum": whole.weight_sum}
        lowest = quantile_over_ln_n(whole.cos_last.astype(np.float32), 0.05).reshape(SEQUENCES, LAYERS, HEADS)
        np.testing.assert_array_equal(computed["cos_last_p05"][:, index], lowest)
        assert set(parts) == set(PER_HEAD)
        for name, expected in parts.items():
            found = computed[name][:, index].reshape(expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(computed["value_scale"][:, index], whole.value_scale[..., 0], rtol=1e-6)
    assert (computed["n_keys"] == np.array(QUERIES)[:, None] + 1).all()


@pytest.mark.parametrize("kv_chunk", [1, 4])
def test_cosines_of_keys_are_those_of_what_a_query_sees(kv_chunk: int) -> None:
    attention, values, first_key = windowed()
    values[1, 0, 2, 0] = 0
    values[0, 1, 3, 17] = 0
    computed = dask.compute(lazily(attention, values, first_key, kv_chunk=kv_chunk))[0]
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


def test_the_wrong_group_order_would_be_noticed() -> None:
    attention, values, first_key = study()
    right = lazily(attention, values, first_key)
    wrong = lazily(attention, values[:, :, ::-1], first_key)
    for name in ("k_in", "norm_y_last", "norm_rest"):
        assert (right[name].compute() != wrong[name].compute()).any()


def test_a_query_knows_nothing_of_what_comes_after_it() -> None:
    """Bit for bit what a study says whose context ends at the query."""
    attention, values, first_key = windowed()
    computed = dask.compute(lazily(attention, values, first_key))[0]
    for index, query in enumerate(QUERIES):
        only, stop = slice(index, index + 1), query + 1
        cut = lazily(attention[:, only, ..., :stop], values[..., :stop, :], first_key[:, only], (query,))
        for name, array in dask.compute(cut)[0].items():
            whole = computed[name] if name == "cos_sink_of_keys" else computed[name][:, only]
            if array.ndim > 3 and array.shape[-1] in {query, stop}:
                whole = whole[..., : array.shape[-1]]
            np.testing.assert_array_equal(array, whole, err_msg=f"{name} of query {query}")


def test_another_query_would_be_noticed() -> None:
    attention, values, first_key = study()
    right, wrong = (lazily(attention, values, first_key, queries) for queries in (QUERIES, (1, 18, KEYS - 1)))
    for name in ("k_out", "norm_y_last", "total_rest", "value_scale", "rho_0_of_keys", "cos_last_of_keys", "n_keys"):
        differs = right[name].compute() != wrong[name].compute()
        assert differs[:, 1].any()
        known = ~np.isnan(right[name].compute()[:, 0])
        assert not differs[:, 0][known].any(), name


def test_hidden_keys_are_no_tokens() -> None:
    attention, values, first_key = windowed()
    computed = dask.compute(lazily(attention, values, first_key))[0]
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
    with pytest.raises(ValueError, match="do not match attention"):
        lazily(attention[..., 1:], values, first_key)
    with pytest.raises(ValueError, match="the 2 queries do not match attention"):
        lazily(attention, values, first_key, (1, 17))
    with pytest.raises(ValueError, match=r"first_key \(3, 3, 1\) and the 3 queries do not match"):
        lazily(attention, values, first_key[..., :1])
    with pytest.raises(ValueError, match="positions from 1 to 39, got"):
        lazily(attention, values, first_key, (1, 17, KEYS))


def test_norms_are_those_of_numpy() -> None:
    _, values, _ = study()
    norms = value_norms(da.from_array(values, chunks=(1, 1, 2, -1, -1))).compute()
    np.testing.assert_allclose(norms, np.linalg.norm(values.astype(float), axis=-1), rtol=1e-6)


@pytest.mark.parametrize("kv_chunk", [1, 4])
def test_similarities_are_those_of_every_sequence(kv_chunk: int) -> None:
    _, values, _ = study()
    values[1, 0, 2, 0] = 0
    lazy = build_similarities(da.from_array(values, chunks=(1, 1, kv_chunk, -1, -1)))
    computed = dask.compute(lazy)[0]
    mean, spread = sink_cosines(values)
    for name, whole in {"mean_cosine": cosine_by_distance(values), "rho_0": mean, "rho_0_sd": spread}.items():
        assert (computed[name].dtype, computed[name].shape) == (np.float32, whole.shape)
        assert lazy[name].npartitions == SEQUENCES * LAYERS * KV_HEADS // kv_chunk
        np.testing.assert_array_equal(computed[name], whole.astype(np.float32))
    assert np.isnan(computed["rho_0"]).sum() == 1


def test_scale_free_bounds_are_those_of_every_head() -> None:
    attention, values, first_key = windowed()
    norms = np.linalg.norm(values.astype(float), axis=-1).astype(np.float32)
    lazy = build_scale_free_bounds(
        da.from_array(attention, chunks=(1, 1, 1, -1, -1)),
        da.from_array(norms, chunks=(1, 1, 2, -1)),
        da.from_array(first_key, chunks=(1, -1, -1)),
        QUERIES,
        head_dim=HEAD_DIM,
    )
    computed = dask.compute(lazy)[0]
    for sequence, index, layer, head in np.ndindex(*first_key.shape, HEADS):
        first, kv_head = first_key[sequence, index, layer], head // (HEADS // KV_HEADS)
        stop = QUERIES[index] + 1
        for name, found in computed.items():
            row = found[sequence, index, layer, head]
            assert (found.dtype, row.shape) == (np.float32, (QUERIES[-1],))
            assert np.isnan(row[stop - first - 1 :]).all()
            if stop - first >= 2:
                alone = scale_free_lower_bounds(
                    attention[sequence, index, layer, head, first:stop],
                    norms[sequence, layer, kv_head, first:stop],
                    HEAD_DIM,
                )
                wanted = getattr(alone, name.removesuffix("_scale_free"))
                np.testing.assert_array_equal(row[: stop - first - 1], wanted.astype(np.float32))


def test_memory_of_similarities_is_bounded_by_a_block() -> None:
    """One block in one thread: what Dask keeps of the tasks of many differs from run to run."""
    keys, head_dim = 512, 64
    values = np.random.default_rng(1).standard_normal((1, 1, KV_HEADS, keys, head_dim), dtype=np.float32)
    bound = estimate_similarity_bytes({"key": keys, "head_dim": head_dim}, KV_HEADS)
    peaks = []
    for _ in range(2):  # what is imported and compiled only once has been before it is counted
        total = build_similarities(da.from_array(values.copy(), chunks=-1))["mean_cosine"][..., 1].sum()
        tracemalloc.start()
        total.compute(scheduler="synchronous", optimize_graph=False)
        peaks.append(tracemalloc.get_traced_memory()[1] + values.nbytes)
        tracemalloc.stop()
    assert bound / 4 < peaks[-1] <= bound


def peak_bytes(keys: int, head_dim: int, threads: int) -> int:
    """Peak of all that Python and NumPy allocate while one of three queries of ``MEASURED`` sequences is measured."""
    values = da.random.default_rng(1).standard_normal(
        (MEASURED, LAYERS, KV_HEADS, keys, head_dim), chunks=(1, 1, KV_HEADS, keys, head_dim), dtype=np.float32
    )
    queries = (keys // 2, keys // 2, keys - 1)
    shape = (MEASURED, len(queries), LAYERS)
    attention = da.full((*shape, HEADS, keys), 1 / keys, chunks=(1, 1, 1, HEADS, keys), dtype=np.float32)
    arrays = build_selection_arrays(attention, values, da.zeros(shape, chunks=(1, -1, -1), dtype=np.int32), queries)
    totals = [arrays[name][:, -1].sum() for name in ("k_in", "r_min", "n_99", "value_scale", "cos_last_of_keys")]
    tracemalloc.start()
    dask.compute(*totals, scheduler="threads", num_workers=threads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_bounded_by_blocks(threads: int) -> None:
    """The peak stays below the stated bytes per thread and far below the study.

    Dask's own bookkeeping, which the same graph over blocks of two keys shows, is not the blocks'.
    """
    keys, head_dim = 512, 64
    bound = estimate_block_bytes({"key": keys, "head_dim": head_dim}, HEADS, KV_HEADS)
    peak_bytes(2, 1, threads)  # what is imported and compiled only once has been before it is counted
    bookkeeping = peak_bytes(2, 1, threads)
    assert peak_bytes(keys, head_dim, threads) - bookkeeping <= threads * bound
    assert threads * bound < 4 * MEASURED * LAYERS * KV_HEADS * keys * head_dim / 3
