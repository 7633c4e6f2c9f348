"""Claims about effects of heads: whether Recall predicts the loss without a head, and geometry finds better budgets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from dagster_project.steps.summaries.claims.parts import Estimated, Resampled, Statistics, count_groups
from geometry.arrays import F64, I64
from geometry.statistics.resampling import LEAST_HEADS, NOTHING, Interval, percentile_interval

LEAST_LOSS = 0.01
"""Smallest mean increase of the loss, in nats, that is worth an explanation."""

CONTRASTS = {
    "elbow_budgets_gain": ("elbow", "same_n"),
    "recall_budgets_gain": ("recall", "same_n"),
    "elbow_budgets_beat_random": ("elbow", "random_budgets"),
    "elbow_chooses_full_heads": ("full_heads_elbow", "full_heads_random"),
}
"""For each claim a policy, and the policy of equal cost that it is compared with."""

PREDICTS = "recall_predicts_loss"

NO_EFFECTS = "the study has no effects"
"""Why a study without interventions tests none of these; such claims are left out of its page."""

Rows = Sequence[Mapping[str, Any]]


class Function:
    """Mean Recall over ln N of every head, and the loss without the head. Memory: 16 · (R + 1) bytes per head."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._recall: list[F64] = []
        self._weights: list[F64] = []
        self._groups: list[I64] = []
        self._places: list[tuple[int, int]] = []

    def add(self, resampled: Resampled) -> None:
        """Add the heads of a layer."""
        layer = resampled.layer
        self._recall.append(resampled.compute_level(resampled.recall))
        self._weights.append(resampled.weights)
        self._groups.append(layer.groups)
        self._places += [(layer.number, head) for head in range(layer.groups.size)]

    def estimate_claims(self, ablation: Rows, losses: Rows) -> dict[str, Estimated]:
        """The claims by name.

        Parameters
        ----------
        ablation
            Rows of ``head_ablation``.
        losses
            Rows of ``sparsified_loss_by_sequence``.
        """
        return {PREDICTS: self._estimate_prediction(ablation), **estimate_budget_claims(losses, self._statistics)}

    def _estimate_prediction(self, ablation: Rows) -> Estimated:
        """The rank correlation of Recall and the loss without a head, without its sign."""
        kinds = [row["kind"] for row in ablation]
        if not kinds:
            return Estimated(NOTHING, reason=NO_EFFECTS)
        kind = "zero" if "zero" in kinds else kinds[0]
        cost = {(row["layer"], row["head"]): row["delta_loss"] for row in ablation if row["kind"] == kind}
        known = [index for index, place in enumerate(self._places) if cost.get(place) is not None]
        if len(known) < LEAST_HEADS:
            return Estimated(NOTHING, rows=len(known), reason="too few heads have a Recall and a loss")
        loss = np.array([cost[self._places[index]] for index in known])
        recall, weights = (np.concatenate(parts)[known] for parts in (self._recall, self._weights))
        clusters = count_groups(np.concatenate(self._groups)[known])
        largest = float(loss.max())
        signed = self._statistics.compute_interval(compute_rank_correlations(recall, loss, weights), clusters, (-1, 1))
        weak = f"no head is worth {LEAST_LOSS:g} nats, the most is {largest:.2g}"
        return Estimated(
            remove_sign(signed), len(known), clusters, largest, reason=weak if largest < LEAST_LOSS else None
        )


def compute_rank_correlations(x: F64, y: F64, weights: F64) -> F64:
    """Spearman's correlation over heads in every replicate: (H, R + 1), (H,), (H, R + 1) → (R + 1,).

    NaN where fewer than ``LEAST_HEADS`` different heads are drawn, or one side is constant.
    """
    found = np.full(weights.shape[1], np.nan)
    for replicate, drawn in enumerate(weights.T):
        taken = (drawn > 0) & ~np.isnan(x[:, replicate])
        if taken.sum() >= LEAST_HEADS:
            heads = np.repeat(np.flatnonzero(taken), drawn[taken].astype(np.int64))
            ranks = [rankdata(values[heads]) for values in (x[:, replicate], y)]
            one, other = (rank - rank.mean() for rank in ranks)
            scale = np.sqrt((one @ one) * (other @ other))
            found[replicate] = np.clip(one @ other / scale, -1, 1) if scale > 0 else np.nan
    return found


def remove_sign(interval: Interval) -> Interval:
    """The interval of the absolute value of a number from its interval; from 0 if the number may have either sign."""
    ends = sorted([abs(interval.low), abs(interval.high)])
    low = 0.0 if interval.low <= 0 <= interval.high else ends[0]
    return Interval(abs(interval.value), low if not np.isnan(interval.low) else np.nan, ends[1])


def estimate_budget_claims(losses: Rows, statistics: Statistics) -> dict[str, Estimated]:
    """The claims about budgets by name: the loss by one policy minus that by another, mean over budgets.

    Sequences are resampled in pairs; a control with several draws has their mean. The budgets are those at which both
    losses are known.

    Parameters
    ----------
    losses
        Rows of ``sparsified_loss_by_sequence``.
    statistics
        The draws, and the number of claims.
    """
    by_policy: dict[tuple[str, float], dict[int, list[float]]] = {}
    for row in losses:
        by_policy.setdefault((row["policy"], row["budget"]), {}).setdefault(row["sequence"], []).append(row["loss"])
    costs: dict[tuple[str, float, str], list[float]] = {}
    for row in losses:
        costs.setdefault((row["policy"], row["budget"], row["setting"]), []).append(row["loss"] - row["plain_loss"])
    largest = max((float(np.mean(cost)) for cost in costs.values()), default=0.0)
    return {claim: _estimate_contrast(by_policy, *pair, statistics, largest) for claim, pair in CONTRASTS.items()}


def _estimate_contrast(
    by_policy: Mapping[tuple[str, float], Mapping[int, Sequence[float]]],
    policy: str,
    control: str,
    statistics: Statistics,
    largest: float,
) -> Estimated:
    """The estimate of one claim about budgets; ``largest`` is the largest mean cost of any policy."""
    if not by_policy:
        return Estimated(NOTHING, reason=NO_EFFECTS)
    budgets = [budget for name, budget in by_policy if name == policy and (control, budget) in by_policy]
    if not budgets:
        return Estimated(NOTHING, reason=f"no budget has both policies, {policy} and {control}")
    sequences = sorted(by_policy[policy, budgets[0]])
    apart = np.array(
        [
            [np.mean(by_policy[policy, budget][one]) - np.mean(by_policy[control, budget][one]) for budget in budgets]
            for one in sequences
        ]
    ).mean(axis=1)
    rng = np.random.default_rng(len(sequences))
    drawn = rng.integers(len(sequences), size=(statistics.resampling.replicates, len(sequences)))
    replicates = np.concatenate([[apart.mean()], apart[drawn].mean(axis=1)])
    interval = percentile_interval(replicates, units=len(sequences), family=statistics.family)
    weak = f"no policy costs {LEAST_LOSS:g} nats, the most is {largest:.2g}"
    reason = "one sequence says nothing about others" if len(sequences) == 1 else None
    return Estimated(
        interval,
        rows=len(sequences) * len(budgets),
        clusters=len(sequences),
        premise=largest,
        reason=weak if largest < LEAST_LOSS else reason,
    )
