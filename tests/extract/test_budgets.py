"""Budgets: policies of one budget cost the same, and are what the statistics of the heads say."""

from typing import get_args

import numpy as np
import pytest

from extract.policies import (
    SHARES,
    Heads,
    LargestKeys,
    Mass,
    Rest,
    SinkAndRecent,
    build_full_heads,
    build_policies,
    count_keys,
    fit_recall_budgets,
)
from tests.refusals import read_refusal

LAYERS, COUNT, CONTEXT = 4, 6, 64
PRESENT = np.ones((LAYERS, COUNT), bool)
PRESENT[1] = False  # no softmax attention
PRESENT[3, 4:] = False  # fewer heads
COUNTS = np.tile(np.arange(1, CONTEXT + 1), (LAYERS, 1))
COUNTS[1] = 0
COUNTS[2] = np.minimum(COUNTS[2], 16)  # a window
GRID = np.arange(1, CONTEXT)


def drawn(seed: int = 0) -> Heads:
    """Recall of each head falls from 1 to a least, and rises to 1 again."""
    rng = np.random.default_rng(seed)
    shape = (LAYERS, COUNT)
    bottom, low = rng.integers(3, 30, shape), rng.uniform(0.2, 0.8, shape)
    recall = 1 - (1 - low)[..., None] * np.exp(-(np.log(GRID / bottom[..., None]) ** 2))
    recall[..., 0] = 1
    elbow = np.where(PRESENT, rng.uniform(1, 40, shape), np.nan)
    elbow[0, 2] = np.nan  # it has none
    scores = {"geometry": rng.standard_normal(shape), "mass": np.where(rng.random(shape) < 0.2, np.nan, 1.0)}
    n_90 = np.where(PRESENT, rng.uniform(1, 40, shape), np.nan)
    keys = {"n_90": n_90, "error": n_90[::-1], "error_mean": n_90[:, ::-1]}
    mass_keys = np.linspace(1, 30, len(SHARES))
    return Heads(PRESENT, COUNTS, elbow, recall=recall, recall_n=GRID, mass_keys=mass_keys, scores=scores, **keys)


def slow_cost(budgets: np.ndarray) -> float:
    """Head by head, query by query."""
    kept = [min(budgets[layer, head], n) for layer, head in zip(*PRESENT.nonzero(), strict=True) for n in COUNTS[layer]]
    return float(np.mean(kept))


def test_the_cost_is_the_mean_number_of_keys_kept() -> None:
    budgets = np.random.default_rng(0).integers(1, CONTEXT, PRESENT.shape)
    assert drawn().compute_cost(budgets) == pytest.approx(slow_cost(budgets))
    assert drawn().compute_cost(np.full(PRESENT.shape, 1)) == 1
    assert drawn().compute_cost(np.full(PRESENT.shape, 999)) == pytest.approx(
        slow_cost(np.full(PRESENT.shape, CONTEXT))
    )


def cost(policy: object) -> float:
    """What a policy costs, slowly."""
    if isinstance(policy, LargestKeys):
        return slow_cost(policy.budgets)
    assert isinstance(policy, SinkAndRecent)
    full = np.zeros(PRESENT.shape, bool) if policy.full is None else policy.full
    return slow_cost(np.where(full, CONTEXT, policy.sink + policy.recent))


SAME_N = {
    name if rest == "renormalised" else f"{name}_{rest}" for name in ("same_n", "off_mean") for rest in get_args(Rest)
}
WINDOWED = {f"{name}_window{rest}" for name in ("same_n", "off_mean") for rest in ("", "_mean")}


@pytest.mark.parametrize("keys", [2, 5, 40])
@pytest.mark.parametrize("seed", range(2))
def test_policies_of_a_budget_cost_the_same(keys: int, seed: int) -> None:
    heads = drawn(seed)
    target = heads.compute_cost(np.full(PRESENT.shape, keys))
    found = build_policies(keys, heads, draws=2, seed=seed)
    names = [policy.name for policy in found]
    always = {"sink_recent", "elbow", "n_90", "error", "error_mean", "recall", "mass", "mass_mean", "random_budgets"}
    always |= SAME_N | (WINDOWED if keys >= 4 else set())
    assert set(names) - {"full_heads_geometry", "full_heads_mass", "full_heads_random"} == always
    assert names.count("random_budgets") == 2
    assert len({(policy.name, policy.setting) for policy in found}) == len(found)
    for policy in found:
        assert (policy.needs == "statistics") == (policy.name.startswith(("sink_recent", "full_heads")))
        assert policy.name.endswith(f"_{policy.rest}") or policy.rest == "renormalised"
        if isinstance(policy, Mass):
            continue
        exact = dict.fromkeys(SAME_N | WINDOWED | {"sink_recent"}, 1e-9)
        slack = (exact | {"random_budgets": 0.4 * keys}).get(policy.name, 0.05 * keys + 0.5)
        assert cost(policy) == pytest.approx(target, abs=slack), policy.name
    assert "full_heads_geometry" in names or keys == 2


def test_what_is_not_known_is_left_out() -> None:
    bare = Heads(PRESENT, COUNTS)
    named = {policy.name for policy in build_policies(16, bare)}
    assert named == {*SAME_N, *WINDOWED, "sink_recent", "full_heads_random"}
    unknown = np.full(PRESENT.shape, np.nan)
    nothing = Heads(PRESENT, COUNTS, elbow=unknown, n_90=unknown)
    assert [policy.name for policy in build_policies(16, nothing)] == [
        policy.name for policy in build_policies(16, bare)
    ]


@pytest.mark.parametrize("name", ["n_90", "error", "error_mean", "elbow"])
def test_budgets_are_proportional_to_what_they_follow(name: str) -> None:
    heads = drawn()
    (policy,) = [policy for policy in build_policies(16, heads) if policy.name == name]
    scores = getattr(heads, name)
    assert isinstance(policy, LargestKeys)
    known = PRESENT & np.isfinite(scores) & (policy.budgets < CONTEXT)
    scale = np.median((policy.budgets / scores)[known])
    assert np.abs(policy.budgets - np.clip(np.rint(scale * scores), 1, CONTEXT))[known].max() <= 1
    shuffled = np.random.default_rng(0).permutation(scores[known])
    assert np.abs(policy.budgets[known] / shuffled / scale - 1).max() > 1, "others would be noticed"
    if name == "elbow":  # a head without one has the median
        assert policy.budgets[0, 2] == pytest.approx(scale * np.median(scores[PRESENT & np.isfinite(scores)]), abs=1)


@pytest.mark.parametrize("target", [6.0, 12.0, 20.0])
def test_recall_stays_from_its_budget_on_and_not_before(target: float) -> None:
    heads = drawn()
    assert heads.recall is not None
    threshold, budgets = fit_recall_budgets(target, heads)
    for layer, head in zip(*PRESENT.nonzero(), strict=True):
        curve, n = heads.recall[layer, head], budgets[layer, head]
        assert (curve[n - 1 :] >= threshold).all()
        assert n == 1 or curve[n - 2] < threshold
    assert budgets[PRESENT].max() > 1  # the first N that has it would be 1 in every head
    assert slow_cost(budgets) == pytest.approx(target, abs=1)
    with pytest.raises(ValueError, match="Recall of the heads is not known"):
        fit_recall_budgets(target, Heads(PRESENT, COUNTS))


def test_random_budgets_are_the_same_numbers() -> None:
    def draw(seed: int) -> list[np.ndarray]:
        found = build_policies(16, drawn(), draws=3, seed=seed)
        return [policy.budgets for policy in found if policy.name in {"elbow", "random_budgets"}]

    elbow, *shuffled = draw(0)
    for budgets in shuffled:
        assert sorted(budgets[PRESENT]) == sorted(elbow[PRESENT])
        assert (budgets != elbow)[PRESENT].any()
    assert (shuffled[0] != shuffled[1]).any()
    np.testing.assert_array_equal(draw(0), [elbow, *shuffled])
    assert (draw(1)[1] != shuffled[0]).any()


def test_full_heads_are_those_of_the_highest_scores() -> None:
    heads = drawn()
    scores = heads.scores["geometry"]
    policy = build_full_heads("geometry", "", scores, 24, heads)
    assert policy is not None
    assert policy.full is not None
    assert 0 < policy.full.sum() < PRESENT.sum()
    assert scores[policy.full].min() > scores[PRESENT & ~policy.full].max()
    assert not (policy.full & ~PRESENT).any()
    unknown = build_full_heads("mass", "", np.where(PRESENT, np.nan, 1.0), 24, heads)
    assert unknown is not None
    assert unknown.full is not None
    assert not (unknown.full & ~PRESENT).any()
    assert build_full_heads("geometry", "", scores, 2, heads) is None
    everything = build_full_heads("geometry", "", scores, CONTEXT, heads)
    assert everything is not None
    assert everything.full is not None
    assert (everything.full == PRESENT).all()


def test_the_share_of_mass_is_read_off_the_curve() -> None:
    heads = drawn()
    policy, _ = (policy for policy in build_policies(16, heads) if isinstance(policy, Mass))
    keys = np.interp(policy.share, SHARES, np.linspace(1, 30, len(SHARES)))
    assert keys == pytest.approx(heads.compute_cost(np.full(PRESENT.shape, 16)))


def test_a_budget_is_a_share_of_the_keys() -> None:
    for budget, context, keys in ((1, 64, 64), (0.5, 64, 32), (1 / 64, 64, 1), (0.1, 512, 51)):
        assert count_keys(budget, context) == keys
    for budget in (1.5, 0, float("nan")):
        said = f"The budget {budget:g} is not a share of the keys; give a number above 0 and up to 1"
        assert said in read_refusal(count_keys, budget, 512)
    assert "0.001 is less than one of 512 keys; give 0.002 or more" in read_refusal(count_keys, 0.001, 512)
