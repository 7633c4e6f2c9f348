"""The Dask layer: lazy, equal to the whole, bounded by its blocks."""

import tracemalloc
from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest

from geometry import PROFILE, selection_profile
from geometry.lazy import (
    COUNTS,
    block_bytes,
    over_sequences,
    scale_free_bounds,
    selection_arrays,
    similarities,
    similarity_bytes,
    value_norms,
)
from geometry.profile import PER_KAPPA
from geometry.scale_free import scale_free_lower_bounds
from geometry.similarity import cosine_by_distance, sink_cosines

SEQUENCES, LAYERS, HEADS, KV_HEADS, KEYS, HEAD_DIM = 3, 2, 8, 4, 40, 6
KAPPAS = (0.5, 50)


def study(keys: int = KEYS, head_dim: int = HEAD_DIM) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(keys), size=(SEQUENCES, LAYERS, HEADS)).astype(np.float32)
    values = rng.standard_normal((SEQUENCES, LAYERS, KV_HEADS, keys, head_dim)).astype(np.float32)
    return attention, values


def lazily(
    attention: np.ndarray, values: np.ndarray, first_key: np.ndarray, kv_chunk: int = KV_HEADS
) -> dict[str, da.Array]:
    return selection_arrays(
        da.from_array(attention, chunks=(1, 1, -1, -1)),
        da.from_array(values, chunks=(1, 1, kv_chunk, -1, -1)),
        da.from_array(first_key, chunks=(1, -1)),
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
    attention, values = study()
    arrays = lazily(attention, values, np.zeros((SEQUENCES, LAYERS), np.int32))
    over_sequences(da.from_array(attention))
    norms = value_norms(da.from_array(values))
    similarities(da.from_array(values))
    scale_free_bounds(da.from_array(attention), norms, da.zeros((SEQUENCES, LAYERS), dtype=int), head_dim=HEAD_DIM)
    assert arrays["k_in"].shape == (SEQUENCES, LAYERS, HEADS, KEYS - 1)
    with pytest.raises(AssertionError, match="something computed"):
        arrays["k_in"].compute()


@pytest.mark.parametrize("kv_chunk", [1, 2, 4])
def test_blocks_equal_the_whole(kv_chunk: int) -> None:
    attention, values = study()
    arrays = lazily(attention, values, np.zeros((SEQUENCES, LAYERS), np.int32), kv_chunk)
    assert arrays["k_in"].npartitions == SEQUENCES * LAYERS * (KV_HEADS // kv_chunk)
    grouped = attention.reshape(SEQUENCES, LAYERS, KV_HEADS, HEADS // KV_HEADS, KEYS)
    whole = selection_profile(grouped, values[:, :, :, None], kappas=KAPPAS, scale="raw")
    computed = dask.compute(arrays)[0]
    for name in PROFILE:
        expected = getattr(whole, name).reshape(SEQUENCES, LAYERS, HEADS, KEYS - 1)
        assert computed[name].dtype == (np.int32 if name in COUNTS else np.float32)
        np.testing.assert_array_equal(computed[name], expected.astype(computed[name].dtype))
    for name in PER_KAPPA:
        expected = getattr(whole, name).reshape(SEQUENCES, LAYERS, HEADS, len(KAPPAS), KEYS - 1)
        np.testing.assert_array_equal(computed[name], expected.astype(np.float32))
    assert computed["value_scale"].dtype == computed["weight_sum"].dtype == np.float32
    np.testing.assert_allclose(computed["value_scale"], whole.value_scale[..., 0], rtol=1e-6)
    np.testing.assert_allclose(computed["weight_sum"].reshape(grouped.shape[:-1]), whole.weight_sum, rtol=1e-6)
    assert (computed["n_keys"] == KEYS).all()


def test_the_wrong_group_order_would_be_noticed() -> None:
    attention, values = study()
    first_key = np.zeros((SEQUENCES, LAYERS), np.int32)
    right = lazily(attention, values, first_key)["k_in"].compute()
    assert (lazily(attention, values[:, :, ::-1], first_key)["k_in"].compute() != right).any()


def test_hidden_keys_are_no_tokens() -> None:
    attention, values = study()
    first_key = np.array([[0, 15], [0, 15], [0, KEYS - 1]], np.int32)
    computed = dask.compute(lazily(attention, values, first_key))[0]
    for sequence, layer in np.ndindex(SEQUENCES, LAYERS):
        first = first_key[sequence, layer]
        n = KEYS - first
        assert computed["n_keys"][sequence, layer] == n
        assert (computed["k_in"][sequence, layer, :, n - 1 :] == -1).all()
        assert np.isnan(computed["r_min"][sequence, layer, :, n - 1 :]).all()
        if n >= 2:
            alone = selection_profile(
                attention[sequence, layer, 0, first:], values[sequence, layer, 0, first:], sink=first == 0
            )
            np.testing.assert_allclose(computed["value_scale"][sequence, layer, 0], alone.value_scale, rtol=1e-6)
            np.testing.assert_array_equal(computed["k_out"][sequence, layer, 0, : n - 1], alone.k_out)
            assert np.isnan(computed["cos_sink"][sequence, layer, 0]).all() == (first > 0)


def test_mismatched_arrays_are_refused() -> None:
    attention, values = study()
    with pytest.raises(ValueError, match="do not match attention"):
        lazily(attention[:, :, :, 1:], values, np.zeros((SEQUENCES, LAYERS), np.int32))


def test_norms_and_means_are_those_of_numpy() -> None:
    attention, values = study()
    norms = value_norms(da.from_array(values, chunks=(1, 1, 2, -1, -1))).compute()
    np.testing.assert_allclose(norms, np.linalg.norm(values.astype(float), axis=-1), rtol=1e-6)
    mean, deviation = dask.compute(*over_sequences(da.from_array(attention, chunks=(1, 1, -1, -1))))
    np.testing.assert_allclose(mean, attention.astype(float).mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, attention.astype(float).std(0), rtol=1e-9, atol=1e-12)


def test_means_and_deviations_are_of_what_is_known() -> None:
    given = np.array([[1.0, np.nan, 2.0], [3.0, np.nan, np.nan]])
    mean, deviation = dask.compute(*over_sequences(da.from_array(given, chunks=(1, -1))))
    np.testing.assert_array_equal(mean, [2, np.nan, 2])
    np.testing.assert_array_equal(deviation, [1, np.nan, 0])


@pytest.mark.parametrize("kv_chunk", [1, 4])
def test_similarities_are_those_of_every_sequence(kv_chunk: int) -> None:
    _, values = study()
    values[1, 0, 2, 0] = 0
    lazy = similarities(da.from_array(values, chunks=(1, 1, kv_chunk, -1, -1)))
    computed = dask.compute(lazy)[0]
    mean, spread = sink_cosines(values)
    for name, whole in {"mean_cosine": cosine_by_distance(values), "rho_0": mean, "rho_0_sd": spread}.items():
        assert (computed[name].dtype, computed[name].shape) == (np.float32, whole.shape)
        assert lazy[name].npartitions == SEQUENCES * LAYERS * KV_HEADS // kv_chunk
        np.testing.assert_array_equal(computed[name], whole.astype(np.float32))
    assert np.isnan(computed["rho_0"]).sum() == 1


def test_scale_free_bounds_are_those_of_every_head() -> None:
    attention, values = study()
    norms = np.linalg.norm(values.astype(float), axis=-1).astype(np.float32)
    first_key = np.array([[0, 15], [0, 15], [0, KEYS - 1]], np.int32)
    lazy = scale_free_bounds(
        da.from_array(attention, chunks=(1, 1, -1, -1)),
        da.from_array(norms, chunks=(1, 1, 2, -1)),
        da.from_array(first_key, chunks=(1, -1)),
        head_dim=HEAD_DIM,
    )
    computed = dask.compute(lazy)[0]
    for sequence, layer, head in np.ndindex(SEQUENCES, LAYERS, HEADS):
        first, kv_head = first_key[sequence, layer], head // (HEADS // KV_HEADS)
        n = KEYS - first
        for name, found in computed.items():
            row = found[sequence, layer, head]
            assert np.isnan(row[n - 1 :]).all()
            if n >= 2:
                alone = scale_free_lower_bounds(
                    attention[sequence, layer, head, first:], norms[sequence, layer, kv_head, first:], HEAD_DIM
                )
                wanted = getattr(alone, name.removesuffix("_scale_free"))
                np.testing.assert_array_equal(row[: n - 1], wanted.astype(np.float32))


def test_memory_of_similarities_is_bounded_by_a_block() -> None:
    keys, head_dim = 512, 64
    values = da.random.default_rng(1).standard_normal(
        (16, 1, KV_HEADS, keys, head_dim), chunks=(1, 1, KV_HEADS, keys, head_dim), dtype=np.float32
    )
    total = similarities(values)["mean_cosine"][..., 1].sum()
    bound = similarity_bytes({"key": keys, "head_dim": head_dim}, KV_HEADS)
    similarities(values[:1])["rho_0"].compute()
    tracemalloc.start()
    total.compute(scheduler="threads", num_workers=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bound / 4 < peak <= bound
    assert bound < 4 * 16 * KV_HEADS * keys * head_dim * 3 / 2


def peak_bytes(keys: int, head_dim: int, threads: int) -> int:
    """Peak of all that Python and NumPy allocate while a study of 32 sequences is measured."""
    values = da.random.default_rng(1).standard_normal(
        (32, LAYERS, KV_HEADS, keys, head_dim), chunks=(1, 1, KV_HEADS, keys, head_dim), dtype=np.float32
    )
    attention = da.full((32, LAYERS, HEADS, keys), 1 / keys, chunks=(1, 1, HEADS, keys), dtype=np.float32)
    arrays = selection_arrays(attention, values, da.zeros((32, LAYERS), chunks=(1, -1), dtype=np.int32))
    totals = [arrays[name].sum() for name in ("k_in", "r_min")]
    selection_profile(np.full(2, 0.5), np.ones((2, 1)))  # compiled before memory is watched
    tracemalloc.start()
    dask.compute(*totals, scheduler="threads", num_workers=threads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_bounded_by_blocks(threads: int) -> None:
    """The peak stays below the stated bytes per thread and far below the study.

    Dask's own bookkeeping, which the same graph over blocks of two keys shows, is not the blocks'.
    """
    keys, head_dim = 512, 64
    bound = block_bytes({"key": keys, "head_dim": head_dim}, HEADS, KV_HEADS)
    bookkeeping = peak_bytes(2, 1, threads)
    assert peak_bytes(keys, head_dim, threads) - bookkeeping <= threads * bound
    assert threads * bound < 4 * 32 * LAYERS * KV_HEADS * keys * head_dim / 3
