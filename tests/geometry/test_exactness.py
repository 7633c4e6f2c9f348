"""Counts over many heads, types and sizes, of made-up heads and of the embedded model's, and one very long head."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch

from extract.capture.one_pass import capture, probe
from extract.hub import silence_libraries
from extract.models import loading as models
from extract.settings import ExtractionSettings
from extract.texts import corpora
from geometry import SelectionProfile, selection_counts, selection_profile
from geometry.selection.profile import estimate_scratch_bytes
from tests.geometry import oracle
from tests.geometry.comparison import COUNTS, departures, unexplained
from tests.geometry.draws import HEADS, assumed_head, grouped, random_head, repeated_head
from tests.memory import trace

SHARE = 1e-4  # Of (head, N) that may depart from the float64 counts, each by a tie within float32 rounding

Heads = Iterable[tuple[np.ndarray, np.ndarray]]


def departed(heads: Heads, sizes: np.ndarray | None = None) -> tuple[int, int]:
    """How many (head, N) have other counts than the oracle, each shown to be a tie, and how many there are."""
    wrong = total = 0
    for weights, values in heads:
        counts, sure = selection_counts(weights, values), oracle.sure_counts(weights, values, sizes)
        wanted = np.arange(1, len(weights)) if sizes is None else sizes
        differ = np.zeros(len(wanted), bool)
        for name in COUNTS:
            given, (low, high) = getattr(counts, name)[wanted - 1], sure.within[name]
            differ |= given != getattr(sure, name)
            assert ((low <= given) & (given <= high)).all(), (
                f"{name} is wrong at N = {wanted[given != getattr(sure, name)]}"
            )
        wrong, total = wrong + differ.sum(), total + len(wanted)
    return wrong, total


def as_type(values: np.ndarray, name: str) -> np.ndarray:
    """Rounded to a type, as the type itself where NumPy has it."""
    return (
        torch.from_numpy(values)
        .to(getattr(torch, name))
        .float()
        .numpy()
        .astype(np.float16 if name == "float16" else np.float32)
    )


class TestTheFastOracle:
    """What the counts of long heads are compared with is itself the definition."""

    @pytest.mark.parametrize("kind", HEADS)
    def test_is_the_slow_one(self, kind: str) -> None:
        weights, values = HEADS[kind](60, 8, 4)
        sure, expected = oracle.sure_counts(weights, values), oracle.profile(weights, values)
        for name in COUNTS:
            np.testing.assert_array_equal(getattr(sure, name), expected[name])

    @pytest.mark.parametrize("seed", range(4))
    def test_is_the_exact_one_where_nothing_but_ties_is_to_be_seen(self, seed: int) -> None:
        weights, values = repeated_head(30, 4, seed)
        sure, expected = oracle.sure_counts(weights, values), oracle.exact_counts(weights, values)
        for name in COUNTS:
            np.testing.assert_array_equal(getattr(sure, name), expected[name])

    def test_knows_where_float32_could_err_and_where_not(self) -> None:
        """On ordinary heads hardly any N is open to rounding, so a wrong count cannot pass for a tie."""
        opened = {}
        for kind in ("random", "assumed", "confined"):
            within = oracle.sure_counts(*HEADS[kind](400, 64, 0)).within
            opened[kind] = np.mean([low != high for low, high in within.values()])
        assert opened["random"] < 0.05
        assert opened["assumed"] < 0.05
        assert opened["confined"] > 0.2

    def test_a_wrong_count_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Wrong:
            def __init__(self, right: oracle.Sure) -> None:
                self.k_in, self.k_out, self.within = right.k_in, right.k_out - 1, right.within

        right = oracle.sure_counts(*random_head(50, 8, 0))
        monkeypatch.setattr(f"{__name__}.selection_counts", lambda *_: Wrong(right))
        with pytest.raises(AssertionError, match="k_out is wrong"):
            departed([random_head(50, 8, 0)])


@pytest.mark.parametrize("kind", ["random", "assumed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_counts_of_drawn_heads(kind: str, dtype: str) -> None:
    """d from 8 to 256, n from 2 to 1024."""
    shapes = [(2, 8), (3, 256), (33, 64), (257, 128), (600, 256), (1000, 16), (1024, 128)]
    heads = ((weights, as_type(values, dtype)) for n, d in shapes for weights, values in [HEADS[kind](n, d, n * d)])
    wrong, total = departed(heads)
    assert wrong <= SHARE * total


@pytest.mark.parametrize("kind", sorted(set(HEADS) - {"confined"}))
def test_counts_of_awkward_heads_are_exact(kind: str) -> None:
    """Among them true ties by the thousand: repeated tokens, weights of 0, value states of 0."""
    for n, d in ((2, 8), (65, 256), (258, 32)):
        assert departed([HEADS[kind](n, d, n)])[0] == 0


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


@pytest.fixture(scope="module")
def tensors() -> tuple[np.ndarray, np.ndarray]:
    """The embedded model's weights (sequence, layer, head, key) and the value states that each head reads."""
    with silence_libraries():
        asked = ExtractionSettings(model="embedded", corpus="embedded", context_length=512, sequences=2, device="cpu")
        described = models.describe(asked)
        windows = corpora.select_windows(
            asked.corpus, described.tokenizer, asked.context_length, asked.sequences, asked.seed
        )
        model, tokens = models.load(described), torch.from_numpy(windows.tokens)
        captured = capture(model, probe(model, tokens[:1, :64]), tokens, asked.query_positions)
    weights, values = (array.swapaxes(0, 1) for array in (captured.weights[:, :, 0].numpy(), captured.values.numpy()))
    return weights, values.repeat(weights.shape[2] // values.shape[2], axis=2)


class TestTheEmbeddedModel:
    """Real tensors: 2 sequences, all layers and heads."""

    def test_counts(self, tensors: tuple[np.ndarray, np.ndarray]) -> None:
        weights, values = tensors
        wrong, total = departed((weights[head], values[head]) for head in np.ndindex(weights.shape[:3]))
        assert total == weights[..., 1:].size
        assert wrong <= SHARE * total

    def test_everything_at_some_n(self, tensors: tuple[np.ndarray, np.ndarray]) -> None:
        weights, values = tensors
        rng, asked = np.random.default_rng(0), {"kappas": (0.05, 0.5, 5)}
        for layer, head in np.ndindex(weights.shape[1:3]):
            of_head = weights[layer % 2, layer, head], values[layer % 2, layer, head]
            profile, sizes = selection_profile(*of_head, **asked), rng.integers(1, weights.shape[-1], 2)
            found = departures(profile, oracle.profile(*of_head, **asked, sizes=sizes), sizes)
            assert unexplained(profile, found, *of_head, **asked) == {}


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize(("kind", "d"), [("random", 8), ("assumed", 128), ("saturated", 32)])
def test_counts_of_8192_keys(kind: str, d: int) -> None:
    sizes = np.concatenate([[1, 2, 8190, 8191], np.random.default_rng(d).integers(1, 8192, 60)])
    assert departed([HEADS[kind](8192, d, 0)], sizes)[0] == 0


@pytest.mark.long
def test_a_long_context_keeps_its_memory_bound_and_the_definitions() -> None:
    n, d, kappas = 16384, 64, (0.5,)
    weights, values = assumed_head(n, d, 0)
    profile = within_stated_memory(weights, values, kappas)
    assert estimate_scratch_bytes(n, d) < 4 * n**2 / 12  # no matrix of all pairs fits in

    sizes = np.array([2, 33, n - 20])
    found = departures(profile, oracle.profile(weights, values, kappas=kappas, sizes=sizes), sizes)
    assert unexplained(profile, found, weights, values, kappas=kappas) == {}
    sizes = np.random.default_rng(1).integers(1, n, 24)
    sure = oracle.sure_counts(weights, values, sizes)
    for name in COUNTS:
        np.testing.assert_array_equal(getattr(profile, name)[sizes - 1], getattr(sure, name))


@pytest.mark.parametrize(("n", "d"), [(64, 256), (1500, 8)])
def test_the_stated_memory_is_enough_for_one_head_and_for_many(n: int, d: int) -> None:
    """However many heads: scratch is that of one."""
    within_stated_memory(*random_head(n, d, 0), (0.5,))
    within_stated_memory(*grouped(random_head, 3, 2, n, d), (0.5, 5))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_stated_memory_does_not_grow_with_the_heads(dtype: type) -> None:
    """Nor do the checks of the input or another type take a copy of all of it: value states of twice the bound."""
    weights, values = random_head(256, 64, 0)
    values = np.tile(values.astype(dtype), (40, 1, 1))
    within_stated_memory(weights, values, (0.5,))


def within_stated_memory(weights: np.ndarray, values: np.ndarray, kappas: tuple[float, ...]) -> SelectionProfile:
    """The profile, computed under watch."""
    selection_profile(weights[..., :9], values[..., :9, :], kappas=kappas)  # compiled before memory is recorder
    profile, peak = trace(lambda: selection_profile(weights, values, kappas=kappas))
    results = sum(np.asarray(array).nbytes for array in vars(profile).values())
    assert peak - results <= estimate_scratch_bytes(*values.shape[-2:])
    return profile
