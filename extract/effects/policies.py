"""Policies of sparse attention: which keys each query keeps, and how many each head may keep.

A policy is called for a block of queries of one layer at a time, and keeps at least one key of each query. Its cost is
the mean number of keys that a query of a head keeps, over all queries of a sequence and all heads. A query cannot keep
more keys than it may attend to, so a budget of N keys costs less than N: budgets of several heads are scaled until
their cost, not their sum, equals that of the same N in all heads. Statistics of heads come from the study's sequences,
losses from other sequences.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extract.capture.attention import compute_softmax
from storage.errors import UserError

Needs = Literal["weights", "statistics"]
"""What a policy needs to know in advance: the weights of a query, which makes it an oracle; or only past statistics of
the head, so that it can be used at inference."""

Order = Literal["weights", "off_mean"]
"""What the keys that are kept have most of: α, or ‖α (v − v̄)‖, which ``Block.off_mean`` defines."""

Rest = Literal["renormalised", "dropped", "mean", "mean_of_rest"]
"""What the weight of the keys that are left out goes to: the kept keys, whose weights are rescaled to sum to 1 with the
learned sink's, as in every sparse method; nothing; the mean value state of all keys that the query sees, which a
decoder can keep up as keys come (value reallocation of SparQ, arXiv 2312.04985); or of the keys left out."""


@dataclass(frozen=True)
class Block:
    """A block of queries of a layer, as passed to a policy."""

    layer: int
    positions: Tensor
    """Of the queries, int64 (Q,)."""
    visible: Tensor
    """Which keys each query may attend to, bool (B or 1, H or 1, Q, K)."""
    logits: Tensor
    """Float32 (B, H, Q, K)."""
    s_aux: Tensor | None
    """Logits of the heads' learned sinks, (H,)."""
    value: Tensor
    """Value states of the keys, (B, Hkv, K, Dv)."""

    @cached_property
    def weights(self) -> Tensor:
        """Softmax weights of the keys, float32 (B, H, Q, K); 0 where a key is hidden."""
        return compute_softmax(self.logits, self.visible, self.s_aux)[..., : self.logits.shape[-1]]

    @cached_property
    def mean_values(self) -> Tensor:
        """Mean value state v̄ of the keys that each query sees, the same for all heads of a KV head: (B, Hkv, Q, Dv)."""
        return self.average_values(self.visible[:, :1].expand(-1, self.value.shape[1], -1, -1))

    @cached_property
    def off_mean(self) -> Tensor:
        """Norms ‖α (v − v̄)‖ of what each key adds to a head's output beyond the mean, float32 (B, H, Q, K).

        Distances are products of value states, which lose the digits that all of them share: these are taken off first.
        """
        centre = self.value.float().mean(dim=2, keepdim=True)
        distances = torch.cdist(self.mean_values - centre, self.value.float() - centre)
        return self.weights * distances.repeat_interleave(self.logits.shape[1] // distances.shape[1], dim=1)

    def average_values(self, chosen: Tensor) -> Tensor:
        """Mean value state of the keys ``chosen``, bool (B or 1, Hkv, Q, K); float32 (B, Hkv, Q, Dv), 0 for no keys."""
        return (chosen.float() @ self.value.float()) / chosen.sum(-1, keepdim=True).clamp(min=1)

    def select_heads(self, numbers: NDArray[Any]) -> Tensor:
        """The layer's row of an array (layers, heads), as a tensor (H,) on the device of the block."""
        return torch.from_numpy(numbers[self.layer, : self.logits.shape[1]]).to(self.logits.device)


@dataclass(frozen=True)
class LargestKeys:
    """Keeps the N keys of the largest weights or distances off the mean, N given for each head.

    Of equal ones, the lower position wins.
    """

    name: str
    setting: str
    budgets: NDArray[np.int64]
    """N of each head, 1 or more, (layers, heads)."""
    by: Order = "weights"
    """What is largest."""
    rest: Rest = "renormalised"
    sink: int = 0
    """Keys from position 0 on that are always among the N."""
    recent: int = 0
    """Most recent keys that are always among the N."""
    needs: Needs = "weights"

    def keep(self, block: Block) -> Tensor:
        """The largest keys, and among them those that are always kept."""
        scores = block.weights if self.by == "weights" else block.off_mean
        if self.sink or self.recent:
            keys = torch.arange(scores.shape[-1], device=scores.device)
            always = (keys < self.sink) | (keys > block.positions[:, None] - self.recent)
            scores = scores.masked_fill(always, torch.inf)
        return select_largest(scores, block.visible, block.select_heads(self.budgets)[:, None])


@dataclass(frozen=True)
class Mass:
    """Keeps, for each query, the fewest keys whose weights sum to a share of the weights of all keys."""

    share: float
    """From 0 to 1."""
    name: str = "mass"
    rest: Rest = "renormalised"
    needs: Needs = "weights"

    @property
    def setting(self) -> str:
        """The share."""
        return f"m={self.share:.6g}"

    def keep(self, block: Block) -> Tensor:
        """The keys of the largest weights, as many as make up the share."""
        return select_largest(block.weights, block.visible, count_fewest(block.weights, [self.share])[..., 0])


@dataclass(frozen=True)
class SinkAndRecent:
    """Keeps the first keys and the most recent ones; in some heads, if given, all keys.

    If a query's window hides some of the first keys, it keeps as many more of the most recent ones.
    """

    sink: int
    """Keys from position 0 on, 0 or more."""
    recent: int
    """Most recent keys, including the query's own position, 1 or more."""
    full: NDArray[np.bool_] | None = None
    """Heads that keep all keys, (layers, heads)."""
    name: str = "sink_recent"
    draw: str = ""
    """Which of several draws it is; appended to the setting."""
    rest: Rest = "renormalised"
    needs: Needs = "statistics"

    @property
    def setting(self) -> str:
        """Both numbers, and how many heads keep all keys."""
        heads = "" if self.full is None else f", {int(self.full.sum())} full heads"
        return f"sink={self.sink}, recent={self.recent}{heads}{self.draw}"

    def keep(self, block: Block) -> Tensor:
        """The first and the most recent keys; the same for every sequence and every head that is not full."""
        keys = torch.arange(block.logits.shape[-1], device=block.logits.device)
        hidden = self.sink - block.visible[..., : self.sink].sum(dim=-1, keepdim=True)
        kept = (keys < self.sink) | (keys > block.positions[:, None] - self.recent - hidden)
        return kept if self.full is None else kept | block.select_heads(self.full)[:, None, None]


Policy: TypeAlias = LargestKeys | Mass | SinkAndRecent
"""Decides which keys are kept: has a name in tables, its parameters as text (``setting``), what it ``needs`` to know in
advance, and what the weight of the keys that it leaves out goes to (``rest``). ``keep`` gives a mask, bool that
broadcasts to (B, H, Q, K); hidden keys are never kept, even if marked."""


def select_largest(weights: Tensor, visible: Tensor, counts: Tensor) -> Tensor:
    """Mask of the keys of the largest numbers (B, H, Q, K), bool of the same shape: ``counts`` keys of each query.

    All visible keys if there are fewer. Numbers are 0 or more; of equal ones, those of lower positions are taken first.
    ``counts`` are 1 or more and broadcast to (B, H, Q).
    """
    weights = torch.where(visible, weights, -1.0)
    keys = weights.shape[-1]
    ranks = (keys - counts.clamp(max=keys)).expand(weights.shape[:-1])[..., None]
    threshold = sort_numbers(weights).gather(-1, ranks)
    kept = (weights >= threshold) & visible
    if (kept.sum(dim=-1, dtype=torch.int32) > counts).any():
        tied = (weights == threshold) & visible
        room = counts[..., None] - (kept & ~tied).sum(dim=-1, keepdim=True, dtype=torch.int32)
        kept &= ~tied | (tied.cumsum(dim=-1, dtype=torch.int32) <= room)
    return kept


def count_fewest(weights: Tensor, shares: Sequence[float]) -> Tensor:
    """Number of the largest weights (B, H, Q, K) that make up shares of their sum, int64 (B, H, Q, shares)."""
    sums = sort_numbers(weights).flip(-1).cumsum(dim=-1, dtype=torch.float64)
    needed = torch.tensor(shares, dtype=torch.float64, device=weights.device) * sums[..., -1:]
    return torch.searchsorted(sums, needed) + 1


def sort_numbers(numbers: Tensor) -> Tensor:
    """Numbers in ascending order over the last axis; on a CPU by NumPy, whose sort is much faster than PyTorch's."""
    if numbers.device.type == "cpu":
        return torch.from_numpy(np.sort(numbers.numpy(), axis=-1))
    return numbers.sort(dim=-1).values


SINK = 4
"""Keys from position 0 on that a sink and recent window has; fewer if the budget is small."""

SHARES = 1 - np.geomspace(0.95, 1e-5, 96)
"""Shares of the weights at which ``Heads.mass_keys`` is known."""


@dataclass(frozen=True)
class Heads:
    """Known statistics of the heads of a model; arrays are (layers, heads), NaN where a number is not known."""

    present: NDArray[np.bool_]
    """Which heads exist."""
    counts: NDArray[np.int64]
    """Keys that each query of a layer may attend to, (layers, queries)."""
    numbers: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Numbers of keys that budgets are proportional to, by name. ``elbow``: N at the elbow of separability; ``n_90``:
    mean number of keys that hold 90 % of the weight at the last query of the study; ``error``: mean smallest N from
    which the error of renormalised weights stays below 10 %, at the same query; ``error_mean``: the same of the error
    that is left if the mean stands for the rest."""
    recall: NDArray[np.float64] | None = None
    """Mean Recall at each N from 1 on, (layers, heads, N)."""
    mass_keys: NDArray[np.float64] | None = None
    """Mean number of keys whose weights sum to each of ``SHARES``, (shares,): see ``count_mass_keys``."""
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """By name, scores that choose which heads keep all keys, those with the highest scores first."""

    def compute_cost(self, budgets: NDArray[np.int64]) -> float:
        """Mean number of keys kept if each head keeps its budget, or all keys of a query that has fewer."""
        return float(self.compute_mean_kept(budgets)[self.present].mean())

    def compute_mean_kept(self, budgets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Mean over the queries of the number of keys that each head keeps, (layers, heads)."""
        return np.take_along_axis(self._table, np.clip(budgets, 1, self.most) - 1, axis=1)

    @property
    def most(self) -> int:
        """Most keys of a query."""
        return int(self.counts.max())

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """Mean over the queries of a layer of the minimum of N and the query's number of keys, (layers, N)."""
        return np.stack([(count[:, None] > np.arange(self.most)).mean(axis=0).cumsum() for count in self.counts])


def count_keys(budget: float, context: int) -> int:
    """Number of keys of a budget given as a share of the context."""
    if not 0 < budget <= 1:
        raise UserError(f"The budget {budget:g} is not a share of the keys; give a number above 0 and up to 1")
    if budget * context < 1:
        raise UserError(f"The budget {budget:g} is less than one of {context} keys; give {1 / context:.2g} or more")
    return round(budget * context)


def build_policies(keys: int, heads: Heads, *, draws: int = 1, seed: int = 0) -> list[Policy]:
    """Build the policies whose cost is that of N = ``keys`` in all heads, and ``draws`` of each random control.

    Costs are equal as nearly as whole numbers allow. Policies whose statistics are not known are left out, and so are
    full heads if the budget does not suffice for one. These are ``same_n`` and ``off_mean`` (the N keys of the largest
    weights or distances off the mean) with each ``Rest``, and with sink and recent window among the N; N of a head
    proportional to its ``elbow``, ``n_90``, ``error`` or ``error_mean``; ``random_budgets`` (those of the elbows,
    assigned at random); ``recall`` (the N from which on a head's mean Recall stays at r or above); ``mass``;
    ``sink_recent``; ``full_heads_SCORE`` for each score and ``full_heads_random``.
    """
    same = np.full(heads.present.shape, keys)
    cost, sink = heads.compute_cost(same), min(SINK, keys - 1)
    policies: list[Policy] = [*build_same_n(keys, same), SinkAndRecent(sink, keys - sink)]
    proportional = {
        name: scale_budgets(scores, cost, heads)
        for name, scores in heads.numbers.items()
        if np.isfinite(scores[heads.present]).any()
    }
    for name, budgets in proportional.items():
        setting = f"mean N={budgets[heads.present].mean():.4g}"
        policies.append(LargestKeys(name, setting, budgets, rest="mean" if name == "error_mean" else "renormalised"))
    if "elbow" in proportional:
        for n in range(draws):
            budgets = proportional["elbow"].copy()
            budgets[heads.present] = _make_rng(seed, 0, n).permutation(budgets[heads.present])
            policies.append(LargestKeys("random_budgets", f"draw {n}", budgets))
    if heads.recall is not None:
        threshold, budgets = fit_recall_budgets(heads.recall, cost, heads)
        policies.append(LargestKeys("recall", f"r={threshold:.4g}", budgets))
    if heads.mass_keys is not None:
        share = float(np.interp(cost, heads.mass_keys, SHARES))
        policies += [Mass(share), Mass(share, "mass_mean", "mean")]
    chosen = [build_full_heads(name, "", scores, keys, heads) for name, scores in heads.scores.items()]
    drawn = [_make_rng(seed, 1, n).random(heads.present.shape) for n in range(draws)]
    chosen += [build_full_heads("random", f", draw {n}", scores, keys, heads) for n, scores in enumerate(drawn)]
    return policies + [policy for policy in chosen if policy is not None]


def scale_budgets(scores: NDArray[np.float64], cost: float, heads: Heads) -> NDArray[np.int64]:
    """Budgets proportional to positive scores of heads, at a given cost; a head without a score gets the median score.

    Returns N of each head, (layers, heads), at least 1.
    """
    known = np.where(np.isfinite(scores) & heads.present, scores, np.nan)
    filled = np.where(np.isfinite(known), known, np.nanmedian(known))

    def scale_scores(scale: float) -> NDArray[np.int64]:
        return np.clip(np.rint(scale * filled), 1, heads.most).astype(np.int64)

    return scale_scores(
        _find_nearest(scale_scores, np.geomspace(0.1 / filled.max(), 2 * heads.most / filled.min(), 2**14), cost, heads)
    )


def build_same_n(keys: int, same: NDArray[np.int64]) -> Iterator[LargestKeys]:
    """The policies with one N in all heads: by weight or distance off the mean, with each use of the other weight."""
    sink, recent = min(SINK, keys // 4), keys // 4
    ends = {rest: "" if rest == "renormalised" else f"_{rest}" for rest in get_args(Rest)}
    with_window = {rest: end for rest, end in ends.items() if recent and rest in {"renormalised", "mean"}}
    for by in get_args(Order):
        name = "same_n" if by == "weights" else by
        for rest, end in ends.items():
            yield LargestKeys(f"{name}{end}", f"N={keys}", same, by, rest)
        for rest, end in with_window.items():
            setting = f"N={keys}, of these sink={sink}, recent={recent}"
            yield LargestKeys(f"{name}_window{end}", setting, same, by, rest, sink, recent)


def fit_recall_budgets(recall: NDArray[np.float64], cost: float, heads: Heads) -> tuple[float, NDArray[np.int64]]:
    """Recall r of all heads at a given cost, and the N of each head from which on its mean Recall stays at r or above.

    This is not the first N that reaches r: at N = 1, Recall is 1 in every head.
    """
    staying = np.minimum.accumulate(recall[..., ::-1], axis=-1)[..., ::-1]  # the minimum from each N on
    numbers = np.append(np.arange(1, recall.shape[-1] + 1), heads.most)

    def find_budgets(threshold: float) -> NDArray[np.int64]:
        budgets: NDArray[np.int64] = np.take(numbers, (~(staying >= threshold)).sum(axis=-1))
        return budgets

    reached = staying[heads.present]
    threshold = _find_nearest(find_budgets, np.unique(reached[np.isfinite(reached)]), cost, heads)
    return threshold, find_budgets(threshold)


def build_full_heads(
    name: str, draw: str, scores: NDArray[np.float64], keys: int, heads: Heads
) -> SinkAndRecent | None:
    """A policy with all keys for the heads of the highest scores, and sink and recent window for the others.

    It costs as much as N = ``keys`` in all heads. Half of the cost is reserved for the windows; the other half pays for
    as many full heads as possible, and the remainder widens the windows. None if it does not suffice for one full head.
    Heads without a score come last.
    """
    shape, cost = heads.present.shape, heads.compute_cost(np.full(heads.present.shape, keys))
    ranked = np.where(heads.present, np.nan_to_num(scores, nan=-np.inf), -np.inf).ravel()
    order = np.argsort(-ranked, kind="stable")
    order = order[heads.present.ravel()[order]]
    narrow, whole = (heads.compute_mean_kept(np.full(shape, n)).ravel()[order] for n in (max(1, keys // 2), heads.most))
    count = int((narrow.sum() + (whole - narrow).cumsum() <= cost * len(order)).sum())
    if not count:
        return None
    full = np.isin(np.arange(heads.present.size), order[:count]).reshape(shape)

    def apply_window(window: float) -> NDArray[np.int64]:
        return np.where(full, heads.most, int(window))

    window = int(_find_nearest(apply_window, np.arange(1.0, heads.most + 1), cost, heads))
    sink = min(SINK, window - 1)
    return SinkAndRecent(sink, window - sink, full, name=f"full_heads_{name}", draw=draw)


def _find_nearest(
    budgets: Callable[[float], NDArray[np.int64]], parameters: NDArray[np.float64], cost: float, heads: Heads
) -> float:
    """The parameter whose budgets have the nearest cost; ``parameters`` ascend, and so do their costs."""

    def compute_cost(parameter: float) -> float:
        return heads.compute_cost(budgets(parameter))

    above = min(max(1, bisect_right(parameters, cost, key=compute_cost)), len(parameters) - 1)
    return float(min(parameters[max(0, above - 1) : above + 1], key=lambda one: abs(compute_cost(one) - cost)))


def _make_rng(seed: int, *key: int) -> np.random.Generator:
    """A generator of a seed for one purpose, independent of those with another key."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
