"""Counts over many heads, types and sizes, of made-up heads and of the embedded model's, and one very long head."""

import numpy as np
import pytest
import torch

from extract.capture.one_pass import capture, probe
from extract.hub import silence_libraries
from extract.models import loading as models
from extract.settings import ExtractionSettings
from extract.texts import corpora
from geometry import SelectionProfile, selection_counts, selection_profile
from geometry.selection import scan
from geometry.selection.profile import estimate_scratch_bytes
from tests.geometry import oracle
from tests.geometry.comparison import COUNTS, departures
from tests.geometry.draws import HEADS, assumed_head, grouped, random_head
from tests.memory import trace


def assert_exact(weights: np.ndarray, values: np.ndarray, sizes: np.ndarray | None = None) -> None:
    counts, sure = selection_counts(weights, values), oracle.sure_counts(weights, values, sizes)
    for name in COUNTS:
        found = getattr(counts, name)
        np.testing.assert_array_equal(found if sizes is None else found[sizes - 1], sure[name], err_msg=name)


@pytest.mark.parametrize("kind", HEADS)
def test_the_fast_oracle_is_the_exact_one(kind: str) -> None:
    """What the counts of long heads are compared with is itself the definition."""
    weights, values = HEADS[kind](30, 4, 4)
    sure, expected = oracle.sure_counts(weights, values), oracle.exact_counts(weights, values)
    for name in COUNTS:
        np.testing.assert_array_equal(sure[name], expected[name])


@pytest.mark.parametrize("kind", HEADS)
def test_counts_of_every_kind_of_head(kind: str) -> None:
    """Among them near ties and true ones by the thousand: repeated tokens, weights of 0, value states of 0."""
    ordinary = [(600, 256), (1000, 16), (1024, 128)] if kind in {"random", "assumed"} else []
    for n, d in [(2, 8), (65, 256), (258, 32), *ordinary]:
        weights, values = HEADS[kind](n, d, n * d)
        assert_exact(weights, values)
        assert_exact(weights, torch.from_numpy(values).bfloat16().float().numpy())


@pytest.mark.parametrize(("n", "rank"), [(2, 0), (64, 1), (1000, -1)])
def test_one_key_with_all_weight_leaves_ties_at_0(n: int, rank: int) -> None:
    """From N = 2 on the nearest key left out and all selected ones but the heavy one have y = 0."""
    weights, values = np.zeros(n, np.float32), np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
    weights[rank] = 1
    counts, size = selection_counts(weights, values), np.arange(1, n)
    np.testing.assert_array_equal(counts.k_in, size)
    np.testing.assert_array_equal(counts.k_out, np.where(size == 1, 0, n - size))
    np.testing.assert_allclose(counts.r_min, np.linalg.norm(values[rank]), rtol=1e-6)
    np.testing.assert_allclose(counts.r_max, np.where(size == 1, 0, np.linalg.norm(values[rank])), rtol=1e-6)


def test_heads_of_the_embedded_model() -> None:
    """Counts for every N, and everything at some."""
    with silence_libraries():
        asked = ExtractionSettings(model="embedded", corpus="embedded", context_length=512, sequences=2, device="cpu")
        described = models.describe(asked)
        windows = corpora.select_windows(asked.corpus, described.tokenizer, 512, 2, asked.seed)
        model, tokens = models.load(described), torch.from_numpy(windows.tokens)
        captured = capture(model, probe(model, tokens[:1, :64]), tokens, asked.query_positions)
    all_weights, all_values = captured["attention"][:, :, 0].numpy(), captured["values"].numpy()
    group, rng, kappas = all_weights.shape[2] // all_values.shape[2], np.random.default_rng(0), (0.05, 0.5, 5)
    for layer, sequence, head in np.ndindex(all_weights.shape[:3]):
        weights, values = all_weights[layer, sequence, head], all_values[layer, sequence, head // group]
        assert_exact(weights, values)
        if sequence == layer % 2:
            profile, sizes = selection_profile(weights, values, kappas=kappas), rng.integers(1, 512, 2)
            expected = oracle.profile(weights, values, kappas=kappas, sizes=sizes)
            assert departures(profile, expected, sizes, upper=1e-5) == {}


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize(("kind", "d"), [("random", 8), ("assumed", 128), ("saturated", 32)])
def test_counts_of_8192_keys(kind: str, d: int) -> None:
    sizes = np.concatenate([[1, 2, 8190, 8191], np.random.default_rng(d).integers(1, 8192, 60)])
    assert_exact(*HEADS[kind](8192, d, 0), sizes)


@pytest.mark.long
def test_a_long_context_keeps_its_memory_bound_and_the_definitions() -> None:
    n, d, kappas = 16384, 64, (0.5,)
    weights, values = assumed_head(n, d, 0)
    profile = within_stated_memory(weights, values, kappas)
    assert estimate_scratch_bytes(n, d) < 4 * n**2 / 12  # no matrix of all pairs fits in

    sizes = np.array([2, 33, n - 20])
    expected = oracle.profile(weights, values, kappas=kappas, sizes=sizes)
    assert departures(profile, expected, sizes, upper=1e-5) == {}
    sizes = np.random.default_rng(1).integers(1, n, 24)
    sure = oracle.sure_counts(weights, values, sizes)
    for name in COUNTS:
        np.testing.assert_array_equal(getattr(profile, name)[sizes - 1], sure[name])


@pytest.mark.parametrize(
    ("n", "d", "heads", "dtype"),
    [
        *((64, 256, (), np.float32), (1500, 8, (), np.float32), (1500, 8, (3, 2), np.float32)),
        *((256, 64, (40, 1), dtype) for dtype in (np.float16, np.float64)),
    ],
)
def test_the_stated_memory_is_enough(n: int, d: int, heads: tuple[int, ...], dtype: type) -> None:
    """However many heads, scratch is that of one.

    Nor do the checks of the input or another type take a copy of all of it: of 40 heads, value states of twice the
    bound.
    """
    weights, values = grouped(random_head, *heads, n, d) if heads else random_head(n, d, 0)
    within_stated_memory(weights, values.astype(dtype), (0.5, 5))


def test_no_more_than_a_strip_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "STRIP_BYTES", 2**17)
    within_stated_memory(*random_head(700, 16, 0), (0.5,))
    assert estimate_scratch_bytes(700, 16) < 4 * 700**2  # no matrix of all pairs fits in


def within_stated_memory(weights: np.ndarray, values: np.ndarray, kappas: tuple[float, ...]) -> SelectionProfile:
    """The profile, computed under watch."""
    selection_profile(weights[..., :9], values[..., :9, :], kappas=kappas)  # compiled before memory is recorded
    profile, peak = trace(lambda: selection_profile(weights, values, kappas=kappas))
    results = sum(np.asarray(array).nbytes for array in vars(profile).values())
    assert peak - results <= estimate_scratch_bytes(*values.shape[-2:])
    return profile
