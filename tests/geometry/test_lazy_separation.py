"""Measures beside chance as Dask arrays: lazy, equal to the whole however it is cut, bounded by a block."""

from collections.abc import Iterator
from functools import partial
from threading import RLock
from typing import Any
from weakref import finalize

import dask
import dask.array as da
import numpy as np
import pytest

from geometry.grids import log_grid
from geometry.lazy.separation import SOURCES, build_separability_arrays, estimate_block_bytes
from geometry.separation.chance import MEASURES, separability
from tests.memory import trace

SEQUENCES, LAYERS, HEADS, KV_HEADS, KEYS, HEAD_DIM = 3, 2, 4, 2, 30, 5
QUERIES = (1, 17, KEYS - 1)
GRID = log_grid(KEYS, 8)
ASKED: dict[str, Any] = {"n": GRID, "draws": 2, "seed": 9, "sequences": range(SEQUENCES), "layers": range(LAYERS)}


def study() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, value states and first keys: a window of layer 1 hides all but the last 12 keys, and in sequence 2 all
    but the last.
    """
    rng = np.random.default_rng(0)
    attention = np.zeros((SEQUENCES, len(QUERIES), LAYERS, HEADS, KEYS), np.float32)
    first_key = np.zeros((SEQUENCES, len(QUERIES), LAYERS), np.int32)
    for index, query in enumerate(QUERIES):
        first_key[:, index, 1] = max(query - 11, 0)
        first_key[2, index, 1] = query
        for place in np.ndindex(SEQUENCES, LAYERS):
            first = first_key[place[0], index, place[1]]
            row = rng.dirichlet(np.ones(query + 1 - first), size=HEADS)
            attention[place[0], index, place[1], :, first : query + 1] = row
    values = rng.standard_normal((SEQUENCES, LAYERS, KV_HEADS, KEYS, HEAD_DIM)).astype(np.float32)
    return attention, values, first_key


def lazily(
    attention: np.ndarray,
    values: np.ndarray,
    first_key: np.ndarray,
    queries: tuple[int, ...] = QUERIES,
    *,
    kv_chunk: int = KV_HEADS,
    **settings: Any,
) -> dict[str, da.Array]:
    return build_separability_arrays(
        da.from_array(attention, chunks=(1, 1, 1, -1, -1)),
        da.from_array(values, chunks=(1, 1, kv_chunk, -1, -1)),
        da.from_array(first_key, chunks=(1, -1, -1)),
        queries,
        **(ASKED | settings),
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
    arrays = lazily(*study())
    assert list(arrays) == list(SOURCES)
    for array in arrays.values():
        assert array.shape == (SEQUENCES, len(QUERIES), LAYERS, HEADS, len(MEASURES), len(GRID))
        assert array.dtype == np.float32
    with pytest.raises(AssertionError, match="something computed"):
        arrays["observed"].compute()


@pytest.mark.parametrize("kv_chunk", [1, 2])
def test_blocks_equal_the_whole(kv_chunk: int) -> None:
    """Also where a window hides the sink, or all keys but one."""
    attention, values, first_key = study()
    arrays = lazily(attention, values, first_key, kv_chunk=kv_chunk)
    assert arrays["observed"].npartitions == SEQUENCES * len(QUERIES) * LAYERS * (KV_HEADS // kv_chunk) > 1
    computed = dask.compute(arrays)[0]
    for sequence, index, layer, head in np.ndindex(attention.shape[:-1]):
        first, query = first_key[sequence, index, layer], QUERIES[index]
        at, below = (sequence, index, layer, head), query + 1 - first > GRID
        for name in SOURCES:
            assert np.isnan(computed[name][at][:, ~below]).all()
        if below.any():
            alone = separability(
                attention[at][first : query + 1],
                values[sequence, layer, head // (HEADS // KV_HEADS), first : query + 1],
                GRID[below],
                draws=2,
                seed=(9, sequence, query, layer, head),
                sink=bool(first == 0),
            )
            for name in SOURCES:
                expected = getattr(alone, name).astype(np.float32)
                np.testing.assert_array_equal(computed[name][at][:, below], expected, err_msg=name)


def test_a_part_of_a_study_draws_as_the_whole_does() -> None:
    attention, values, first_key = study()
    whole = dask.compute(lazily(attention, values, first_key))[0]
    part = lazily(
        attention[1:, 2:, 1:], values[1:, 1:], first_key[1:, 2:, 1:], QUERIES[2:], sequences=(1, 2), layers=(1,)
    )
    for name, array in dask.compute(part)[0].items():
        np.testing.assert_array_equal(array, whole[name][1:, 2:, 1:], err_msg=name)


@pytest.mark.parametrize("other", [{"sequences": (0, 1, 5)}, {"layers": (0, 2)}, {"seed": 8}, {"draws": 1}])
def test_other_draws_would_be_noticed(other: dict[str, Any]) -> None:
    """In the null, and only where the words differ."""
    right, wrong = (dask.compute(lazily(*study(), **settings))[0] for settings in ({}, other))
    np.testing.assert_array_equal(right["observed"], wrong["observed"])
    differs = (right["random_selection"] != wrong["random_selection"]) & ~np.isnan(right["random_selection"])
    where = differs[:, 2].any(axis=(-3, -2, -1))  # sequence, layer
    assert where.tolist() == {
        "sequences": [[False, False], [False, False], [True, False]],  # of layer 1 it sees one key
        "layers": [[False, True], [False, True], [False, False]],
    }.get(next(iter(other)), [[True, True], [True, True], [True, False]])


def test_the_wrong_group_order_would_be_noticed() -> None:
    attention, values, first_key = study()
    right, wrong = lazily(attention, values, first_key), lazily(attention, values[:, :, ::-1], first_key)
    for name in SOURCES:
        assert (right[name].compute() != wrong[name].compute()).any()


def test_mismatched_arrays_are_refused() -> None:
    attention, values, first_key = study()
    with pytest.raises(ValueError, match="do not match attention"):
        lazily(attention[..., 1:], values, first_key)
    with pytest.raises(ValueError, match=r"2 sequences and 2 layers do not match values \(3, 2, 2, 30, 5\)"):
        lazily(attention, values, first_key, sequences=(0, 1))
    with pytest.raises(ValueError, match="positions from 1 to 29, got"):
        lazily(attention, values, first_key, (1, 17, KEYS))


KEYS_OF_LARGE, HEAD_DIM_OF_LARGE = 512, 64
BOUND = estimate_block_bytes(
    {"key": KEYS_OF_LARGE, "head_dim": HEAD_DIM_OF_LARGE}, HEADS, KV_HEADS, len(log_grid(KEYS_OF_LARGE))
)


def build_large(values: da.Array) -> list[da.Array]:
    """Sums of what is measured at the last of two queries of all sequences and layers of some value states."""
    sequences, layers, _, keys, _ = values.shape
    shape = (sequences, 2, layers)
    arrays = build_separability_arrays(
        da.full((*shape, HEADS, keys), 1 / keys, chunks=(1, 1, 1, HEADS, keys), dtype=np.float32),
        values,
        da.zeros(shape, chunks=(1, -1, -1), dtype=np.int32),
        (keys // 2, keys - 1),
        **(ASKED | {"n": log_grid(keys), "sequences": range(sequences), "layers": range(layers), "draws": 1}),
    )
    return [array[:, -1].sum() for array in arrays.values()]


def test_memory_of_a_block_is_bounded() -> None:
    """One block in one thread: what Dask keeps of the tasks of many, as much again, differs from run to run."""
    shape = (1, 1, KV_HEADS, KEYS_OF_LARGE, HEAD_DIM_OF_LARGE)
    values = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    peaks = []
    for _ in range(2):  # what is imported and compiled only once has been before it is counted
        totals = build_large(da.from_array(values.copy(), chunks=-1))
        compute = partial(dask.compute, *totals, scheduler="synchronous", optimize_graph=False)
        peaks.append(trace(compute)[1] + values.nbytes)
    assert BOUND / 4 < peaks[-1] <= BOUND


class Loading:
    """Blocks of value states, and how many of them were in memory at once."""

    def __init__(self) -> None:
        self.most = self.all = self._now = 0
        self._lock = RLock()  # garbage may be collected while it is held

    def load(self, shape: tuple[int, ...]) -> np.ndarray:
        block = np.full(shape, 0.5, np.float32)
        with self._lock:
            self._now += 1
            self.all += 1
            self.most = max(self.most, self._now)
        finalize(block, self._unload)
        return block

    def _unload(self) -> None:
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize("threads", [1, 2])
def test_each_thread_has_two_blocks_at_most(threads: int) -> None:
    """The one that it measures and the next; they are counted, since bytes would include what Dask itself needs."""
    loading, shape = Loading(), (1, 1, KV_HEADS, 8, 2)
    values = da.map_blocks(
        lambda block_info: loading.load(shape),  # noqa: ARG005 (Dask asks for it by name)
        chunks=((1,) * 16, (1,) * LAYERS, *((size,) for size in shape[2:])),
        dtype=np.float32,
        meta=np.empty((0,) * 5, np.float32),
    )
    dask.compute(*build_large(values), scheduler="threads", num_workers=threads)
    assert loading.all >= 16 * LAYERS
    assert 0 < loading.most <= 2 * threads
