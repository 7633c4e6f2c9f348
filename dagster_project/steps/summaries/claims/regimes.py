"""Claims of Table 2: where over N the margin Δ is above 0."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_project.steps.summaries.claims.parts import SHARE, Estimated, Statistics, count_groups
from geometry.arrays import F64, I64
from geometry.statistics.resampling import NOTHING, mean_over_heads

POSITIVE, LOST = "II", "IV"
"""The regime in which Δ is above 0, and the one in which it often is not."""


def estimate_regime_claims(
    table: pa.Table | None, groups: dict[tuple[int, int], int], statistics: Statistics
) -> dict[str, Estimated]:
    """The claims by name.

    Parameters
    ----------
    table
        The rows of ``regimes_by_sequence`` of one query; None if no head has a fit of Assumption 3.
    groups
        Index of the KV group of each layer and head.
    statistics
        The draws.
    """
    positive, lost = (_compute_shares(table, regime, groups, statistics) for regime in (POSITIVE, LOST))
    return {
        "margin_positive_early": _estimate(*positive, statistics, POSITIVE),
        "margin_lost_in_valleys": _estimate(1 - lost[0], lost[1], statistics, LOST),
    }


def _compute_shares(
    table: pa.Table | None, regime: str, groups: dict[tuple[int, int], int], statistics: Statistics
) -> tuple[F64, I64]:
    """Share of ln N with Δ > 0 in a regime, (S, H), NaN for a sequence without it; and the heads' KV groups, (H,)."""
    sequences = len(statistics.resampling.sequences)
    if table is None:
        return np.empty((sequences, 0)), np.empty(0, np.int64)
    chosen = table.filter(pc.equal(table["regime"], regime))
    columns = {name: chosen[name].to_numpy() for name in ("sequence", "layer", "head", "positive_share")}
    places = sorted(set(zip(columns["layer"].tolist(), columns["head"].tolist(), strict=True)))
    index = {place: at for at, place in enumerate(places)}
    heads = [index[place] for place in zip(columns["layer"].tolist(), columns["head"].tolist(), strict=True)]
    shares = np.full((sequences, len(places)), np.nan)
    shares[columns["sequence"], heads] = columns["positive_share"]
    return shares, np.array([groups[place] for place in places], np.int64)


def _estimate(shares: F64, groups: I64, statistics: Statistics, regime: str) -> Estimated:
    """The mean over sequences and heads."""
    if not groups.size:
        return Estimated(NOTHING, reason=f"no head has a regime {regime}")
    resampling = statistics.resampling
    replicates = mean_over_heads(resampling.means(shares), resampling.count_head_draws(groups))
    clusters = count_groups(groups)
    return Estimated(statistics.compute_interval(replicates, clusters, SHARE), int(groups.size), clusters)
