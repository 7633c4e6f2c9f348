"""Sparse attention against a slow reading of each policy, query by query, and budgets against their definitions."""

from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture.one_pass import Attention, probe
from extract.effects import sparsity as module
from extract.effects.interventions import Call, Edit, intervene
from extract.effects.policies import (
    SHARES,
    Block,
    Heads,
    LargestKeys,
    Mass,
    Policy,
    Rest,
    SinkAndRecent,
    build_full_heads,
    build_policies,
    count_fewest,
    count_keys,
    fit_recall_budgets,
    select_largest,
)
from extract.effects.sparsity import SparseEdit, count_mass_keys, estimate_policy_bytes, measure_policy_losses
from tests.extract.families import (
    KEYS,
    attention_of,
    bound_logits,
    ids,
    model_of,
    plain_of,
    sequence,
)
from tests.extract.memory import Held
from tests.extract.tiny import tiny_model
from tests.refusals import read_refusal

pytestmark = pytest.mark.usefixtures("noiseless", "inference")

NOTICED = 2e-3
"""Least change of a logit, of standard deviation about 1, by which keys left out show: above all rounding."""


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 2 * 4 * KEYS * 7)


ALL = SinkAndRecent(KEYS, 1)
"""Keeps all keys."""


@dataclass
class Slow:
    """Attention to chosen keys in float64, query by query, with the choice in plain Python."""

    policy: Policy
    wrong: str = ""
    """What it does wrong, as a control."""

    def __post_init__(self) -> None:
        self.kept: list[int] = []

    def __call__(self, call: Call) -> Tensor:
        batch, heads, keys, _ = call.query.shape
        group, found = heads // call.key.shape[1], call.output().clone()
        for b in range(batch):
            for h in range(heads):
                key, value = call.key[b, h // group].double(), call.value[b, h // group].double()
                for q in range(keys):
                    logits = (key[: q + 1] @ call.query[b, h, q].double()) * call.how.scale
                    if call.how.softcap is not None:
                        logits = call.how.softcap * (logits / call.how.softcap).tanh()
                    mask = None if call.how.mask is None else call.how.mask[b % len(call.how.mask), 0, q]
                    visible = [j for j in range(q + 1) if mask is None or bool(mask[j])]
                    sink = None if call.how.s_aux is None else float(call.how.s_aux[h].double().exp())
                    found[b, q, h] = self._z(call.layer, h, q, visible, logits, value, sink).to(found)
        return found

    def _z(self, layer: int, head: int, query: int, visible: list[int], logits: Tensor, value: Tensor, sink) -> Tensor:
        powers = {j: float(logits[j].exp()) for j in visible}
        total = sum(powers.values()) + (sink or 0)
        weights = {j: power / total for j, power in powers.items()}
        mean = average(value, [query] if self.wrong == "mean" else visible)
        scores = {j: weight * float((value[j] - mean).norm()) for j, weight in weights.items()}
        kept = chosen(self.policy, layer, head, query, weights, scores)
        self.kept.append(len(kept))
        if self.policy.rest == "renormalised" and self.wrong != "scale":
            total = sum(powers[j] for j in kept) + (0 if self.wrong == "sink" else sink or 0)
        found = sum(powers[j] / total * value[j] for j in kept)
        others = [j for j in visible if j not in kept]
        if self.policy.rest == "mean":
            found += sum(weights[j] for j in others) * mean
        elif self.policy.rest == "mean_of_rest" and others:
            found += sum(weights[j] for j in others) * average(value, others)
        return found


def average(value: Tensor, chosen: list[int]) -> Tensor:
    return sum(value[j] for j in chosen) / len(chosen)


def chosen(
    policy: Policy, layer: int, head: int, query: int, weights: dict[int, float], off_mean: dict[int, float]
) -> list[int]:
    """The keys that a policy keeps, by its definition."""
    by_weight = sorted(weights, key=lambda j: (-weights[j], j))
    if isinstance(policy, LargestKeys):
        scores = weights if policy.by == "weights" else off_mean
        always = [j for j in sorted(weights) if j < policy.sink or j > query - policy.recent]
        others = sorted(set(weights) - set(always), key=lambda j: (-scores[j], j))
        return (always + others)[: int(policy.budgets[layer, head])]
    if isinstance(policy, Mass):
        count = next(
            n
            for n in range(1, len(by_weight) + 1)
            if sum(weights[j] for j in by_weight[:n]) >= policy.share * sum(weights.values())
        )
        return by_weight[:count]
    if policy.full is not None and policy.full[layer, head]:
        return sorted(weights)
    recent = policy.recent + sum(j not in weights for j in range(policy.sink))
    return [j for j in weights if j < policy.sink or j > query - recent]


BUDGETS = np.array([[1, 3, 8, 100], [5, 2, 30, 1], [7, 7, 2, 12]])
FULL = np.array([[True, False, False, True], [False] * 4, [True] * 4])
POLICIES: dict[str, Policy] = {
    "largest": LargestKeys("", "", BUDGETS),
    "largest, dropped": LargestKeys("", "", BUDGETS, rest="dropped"),
    "largest, mean": LargestKeys("", "", BUDGETS, rest="mean"),
    "off mean": LargestKeys("", "", BUDGETS, by="off_mean"),
    "off mean, mean of rest": LargestKeys("", "", BUDGETS, by="off_mean", rest="mean_of_rest"),
    "weight window": LargestKeys("", "", BUDGETS, sink=1, recent=2),
    "window": LargestKeys("", "", BUDGETS, by="off_mean", rest="mean", sink=1, recent=2),
    "mass": Mass(0.7),
    "mass, mean": Mass(0.7, rest="mean"),
    "sink and recent": SinkAndRecent(2, 5),
    "recent alone": SinkAndRecent(0, 1),
    "full heads": SinkAndRecent(1, 4, FULL),
}

REPEATED = ("off mean, mean of rest", "mass, mean", "full heads")
"""One policy of each class, with all that it has to compute."""

SLOW_FAMILIES = ("Llama 2, Llama 3", "Gemma 2", "gpt-oss", "DeepSeek-V3")
"""GQA; windows and soft caps; windows and learned sinks; value states of another length."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [(policy, "gpt-oss") for policy in POLICIES]
    + [(policy, name) for policy in REPEATED for name in SLOW_FAMILIES if name != "gpt-oss"],
)
def test_every_policy_keeps_what_its_definition_says(policy: str, name: str) -> None:
    model, attention = model_of(name), attention_of(name)
    full = short(model, attention, SparseEdit(ALL))
    slow, fast = Slow(POLICIES[policy]), SparseEdit(POLICIES[policy])
    expected, found = (short(model, attention, edit) for edit in (slow, fast))
    assert fast.keys_kept == pytest.approx(np.mean(slow.kept))
    assert (found - expected).abs().max() < bound_logits(name)
    assert (found - full).abs().max() > NOTICED


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [("largest", "scale"), ("largest", "sink"), ("off mean", "mean"), ("largest, mean", "mean")],
)
def test_a_wrong_reading_is_noticed(policy: str, wrong: str) -> None:
    model, attention = model_of("gpt-oss"), attention_of("gpt-oss")
    expected, found = (
        short(model, attention, edit) for edit in (Slow(POLICIES[policy], wrong), SparseEdit(POLICIES[policy]))
    )
    assert (found - expected).abs().max() > NOTICED


def test_distances_off_the_mean_keep_their_digits_where_value_states_share_most_of_theirs() -> None:
    generator = torch.Generator().manual_seed(0)
    value = 100 + 0.01 * torch.randn(1, 2, 90, 8, generator=generator)
    visible = torch.ones(90, 90, dtype=torch.bool).tril()[None, None]
    block = Block(0, torch.arange(90), visible, torch.zeros(1, 2, 90, 90), None, value)
    exact = value.double()
    means = exact.cumsum(dim=2) / torch.arange(1, 91)[:, None]
    expected = block.weights * (means[:, :, :, None] - exact[:, :, None]).norm(dim=-1)
    assert (block.off_mean - expected).abs().max() < 0.01 * expected[..., 1:, :].max(dim=-1).values.min()


def short(model: PreTrainedModel, attention: Attention, edit: Edit) -> Tensor:
    """Logits of a sequence that is short enough for the slow reading, longer than a window."""
    with intervene(model, attention, edit):
        return model(input_ids=ids(1)[:, :22], use_cache=False).logits


# --- choosing keys ---


def test_ties_go_to_the_lower_position_and_hidden_keys_are_never_kept() -> None:
    weights = torch.tensor([[[[0.2, 0.0, 0.2, 0.2, 0.0, 0.4], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]]])
    visible = torch.tensor([[[[True] * 6, [False, True, True, True, True, False]]]])

    def kept(*counts: int) -> list[list[int]]:
        rows = select_largest(weights, visible, torch.tensor([[counts]]))[0, 0]
        return [row.nonzero().ravel().tolist() for row in rows]

    assert kept(1, 1) == [[5], [3]]
    assert kept(2, 2) == [[0, 5], [1, 3]]
    assert kept(3, 3) == [[0, 2, 5], [1, 2, 3]]
    assert kept(5, 4) == [[0, 1, 2, 3, 5], [1, 2, 3, 4]]
    assert kept(6, 9) == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4]]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 1.0])
def test_the_fewest_keys_of_a_share_are_exact(share: float) -> None:
    weights = torch.tensor([[0.5, 0.25, 0.125, 0.125, 0.0], [0.25] * 4 + [0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    for row, found in zip(weights.tolist(), count_fewest(weights, [share])[..., 0].tolist(), strict=True):
        ordered = sorted((Fraction(number) for number in row), reverse=True)
        assert found == next(n for n in range(1, 6) if sum(ordered[:n]) >= Fraction(share) * sum(ordered))


# --- losses ---


def test_losses_of_policies() -> None:
    name = "Llama 2, Llama 3"
    model, attention = model_of(name), attention_of(name)
    policies = [ALL, *(POLICIES[policy] for policy in REPEATED)]
    found = measure_policy_losses(model, attention, sequence(), policies)
    logits = model(input_ids=sequence()[None], use_cache=False).logits[0].double()
    own = float(torch.nn.functional.cross_entropy(logits[:-1], sequence()[1:]))
    assert found["plain_loss"] == pytest.approx(own, abs=1e-6)
    assert found["loss"][0] == pytest.approx(found["plain_loss"], abs=1e-5)
    assert found["kl"][0] == pytest.approx(0, abs=1e-6)
    assert min(found["kl"][1:]) > 1e-4
    for at, policy in enumerate(policies):
        edit = SparseEdit(policy)
        with intervene(model, attention, edit):
            theirs = model(input_ids=sequence()[None], use_cache=False).logits[0].double()
        assert found["keys_kept"][at] == edit.keys_kept
        divergence = (logits.softmax(-1) * (logits.log_softmax(-1) - theirs.log_softmax(-1))).sum(-1).mean()
        assert found["kl"][at] == pytest.approx(float(divergence), abs=1e-6)
    assert measure_policy_losses(model, attention, sequence(), [])["loss"] == []


def test_keys_that_make_a_share() -> None:
    name = "Llama 2, Llama 3"
    model, attention, shares = model_of(name), attention_of(name), [0.5, 0.9, 0.99]
    found = count_mass_keys(model, attention, ids(), shares)
    assert (np.diff(found) > 0).all()
    for share, keys in zip(shares, found, strict=True):
        counts = []
        for weights in plain_of(name).weights.values():
            sums = weights.double().sort(dim=-1, descending=True).values.cumsum(-1)
            counts.append((sums < share * sums[..., -1:]).sum(-1) + 1)
        assert keys == pytest.approx(float(torch.stack(counts).double().mean()), abs=0.01)  # of 1152 queries
    alone = [count_mass_keys(model, attention, one[None], shares) for one in ids()]
    np.testing.assert_allclose(np.mean(alone, axis=0), found)


@pytest.mark.one_case
@pytest.mark.parametrize("policy", REPEATED)
def test_memory_is_that_of_some_blocks(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1024 keys the weights of a layer take 16 MiB; a block is told to take 1 MiB."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**20)
    model = tiny_model("llama", max_position_embeddings=1024)
    attention, tokens = probe(model, ids(1)), ids(1, 1024)[0]
    with Held() as bare:
        measure_policy_losses(model, attention, tokens, [])
    with Held() as held:
        measure_policy_losses(model, attention, tokens, [POLICIES[policy]])
    assert held.largest < 2**23
    assert 2**20 < held.most <= bare.most + 16 * 2**20
    assert held.most <= estimate_policy_bytes(model, 1024)


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
    numbers = {"elbow": elbow, "n_90": n_90, "error": n_90[::-1], "error_mean": n_90[:, ::-1]}
    mass_keys = np.linspace(1, 30, len(SHARES))
    return Heads(PRESENT, COUNTS, numbers, recall, mass_keys, scores)


def slow_cost(budgets: np.ndarray) -> float:
    """Head by head, query by query."""
    kept = [min(budgets[layer, head], n) for layer, head in zip(*PRESENT.nonzero(), strict=True) for n in COUNTS[layer]]
    return float(np.mean(kept))


def cost(policy: Policy) -> float:
    """What a policy costs, slowly."""
    if isinstance(policy, LargestKeys):
        return slow_cost(policy.budgets)
    if isinstance(policy, Mass):  # as its curve has it
        return float(np.interp(policy.share, SHARES, np.linspace(1, 30, len(SHARES))))
    full = np.zeros(PRESENT.shape, bool) if policy.full is None else policy.full
    return slow_cost(np.where(full, CONTEXT, policy.sink + policy.recent))


SAME_N = {
    name if rest == "renormalised" else f"{name}_{rest}" for name in ("same_n", "off_mean") for rest in get_args(Rest)
}
WINDOWED = {f"{name}_window{rest}" for name in ("same_n", "off_mean") for rest in ("", "_mean")}


@pytest.mark.parametrize("keys", [2, 5, 40])
def test_policies_of_a_budget_cost_the_same(keys: int) -> None:
    heads, same = drawn(), np.full(PRESENT.shape, keys)
    assert heads.compute_cost(same) == pytest.approx(slow_cost(same))
    found = build_policies(keys, heads, draws=2, seed=0)
    names = [policy.name for policy in found]
    always = {"sink_recent", "elbow", "n_90", "error", "error_mean", "recall", "mass", "mass_mean", "random_budgets"}
    always |= SAME_N | (WINDOWED if keys >= 4 else set())
    assert set(names) - {"full_heads_geometry", "full_heads_mass", "full_heads_random"} == always
    assert "full_heads_geometry" in names or keys == 2
    assert len({(policy.name, policy.setting) for policy in found}) == len(found)
    exact = dict.fromkeys(SAME_N | WINDOWED | {"sink_recent"}, 1e-9)
    for policy in found:
        assert (policy.needs == "statistics") == (policy.name.startswith(("sink_recent", "full_heads")))
        assert policy.name.endswith(f"_{policy.rest}") or policy.rest == "renormalised"
        slack = (exact | {"random_budgets": 0.4 * keys}).get(policy.name, 0.05 * keys + 0.5)
        assert min(cost(policy), 30) == pytest.approx(min(slow_cost(same), 30), abs=slack), policy.name
    elbow, *shuffled = (policy.budgets for policy in found if policy.name in {"elbow", "random_budgets"})
    for budgets in shuffled:
        assert sorted(budgets[PRESENT]) == sorted(elbow[PRESENT])
        assert (budgets != elbow)[PRESENT].any()
    assert (shuffled[0] != shuffled[1]).any()
    unknown = np.full(PRESENT.shape, np.nan)
    bare = build_policies(16, Heads(PRESENT, COUNTS, {"elbow": unknown, "n_90": unknown}))
    assert {policy.name for policy in bare} == {*SAME_N, *WINDOWED, "sink_recent", "full_heads_random"}


@pytest.mark.parametrize("name", ["n_90", "error", "error_mean", "elbow"])
def test_budgets_are_proportional_to_what_they_follow(name: str) -> None:
    heads = drawn()
    (policy,) = [policy for policy in build_policies(16, heads) if policy.name == name]
    scores = heads.numbers[name]
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
    threshold, budgets = fit_recall_budgets(heads.recall, target, heads)
    for layer, head in zip(*PRESENT.nonzero(), strict=True):
        curve, n = heads.recall[layer, head], budgets[layer, head]
        assert (curve[n - 1 :] >= threshold).all()
        assert n == 1 or curve[n - 2] < threshold
    assert budgets[PRESENT].max() > 1  # the first N that has it would be 1 in every head
    assert slow_cost(budgets) == pytest.approx(target, abs=1)


def test_full_heads_are_those_of_the_highest_scores() -> None:
    heads = drawn()
    scores = heads.scores["geometry"]

    def find_full(scores: np.ndarray, keys: int) -> np.ndarray:
        policy = build_full_heads("geometry", "", scores, keys, heads)
        assert policy is not None
        assert policy.full is not None
        assert not (policy.full & ~PRESENT).any()
        return policy.full

    full = find_full(scores, 24)
    assert 0 < full.sum() < PRESENT.sum()
    assert scores[full].min() > scores[PRESENT & ~full].max()
    assert find_full(np.where(PRESENT, np.nan, 1.0), 24).any()
    assert (find_full(scores, CONTEXT) == PRESENT).all()
    assert build_full_heads("geometry", "", scores, 2, heads) is None


def test_a_budget_is_a_share_of_the_keys() -> None:
    for budget, context, keys in ((1, 64, 64), (1 / 64, 64, 1), (0.1, 512, 51)):
        assert count_keys(budget, context) == keys
    for budget in (1.5, 0, float("nan")):
        said = f"The budget {budget:g} is not a share of the keys; give a number above 0 and up to 1"
        assert said in read_refusal(count_keys, budget, 512)
    assert "0.001 is less than one of 512 keys; give 0.002 or more" in read_refusal(count_keys, 0.001, 512)
