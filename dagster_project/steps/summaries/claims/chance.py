"""The claim of the abstract that selection sharpens separability: measures compared with those of chance."""

import numpy as np
import pyarrow as pa
from scipy import stats

from dagster_project.steps.summaries.claims.parts import Estimated, Statistics, count_groups
from geometry.arrays import F64
from geometry.statistics.resampling import LEVEL, NOTHING, compute_log_weights, mean_over_heads, percentile_interval

MEASURES = ("specificity", "recall", "auc")
"""The measures that do not depend on how many keys there are to select from."""

CLAIMS = {"random_selection": "selection_sharpens", "shuffled_values": "values_sharpen"}
"""The claim that belongs to each null."""


def estimate_chance_claims(
    table: pa.Table | None, groups: dict[tuple[int, int], int], statistics: Statistics
) -> dict[str, Estimated]:
    """The claims by name.

    The estimate is the smallest, over the measures, of the mean over ln N and heads of the measure minus that of the
    null. Heads are resampled. The standard errors of their means over sequences are in the table; an error of that size
    is drawn and added to all heads at once, which is the worst case.

    Parameters
    ----------
    table
        The rows of ``separability`` of one query; None if the nulls were not computed.
    groups
        Index of the KV group of each layer and head.
    statistics
        The draws.
    """
    return {claim: _estimate(table, null, groups, statistics) for null, claim in CLAIMS.items()}


def _estimate(
    table: pa.Table | None, null: str, groups: dict[tuple[int, int], int], statistics: Statistics
) -> Estimated:
    """The estimate that belongs to one null."""
    replicates = statistics.resampling.replicates
    found = None if table is None else _compute_levels(table, null)
    if found is None:
        return Estimated(NOTHING, reason="the study computes no nulls")
    places, difference, error = found
    group = np.array([groups[place] for place in places], np.int64)
    weights = statistics.resampling.count_head_draws(group)
    off = np.concatenate([[0.0], np.random.default_rng(len(places)).standard_normal(replicates)])
    moved = [
        mean_over_heads(np.repeat(of_measure[:, None], replicates + 1, axis=1), weights) + off * of_error.mean()
        for of_measure, of_error in zip(difference, error, strict=True)
    ]
    clusters = count_groups(group)
    interval = percentile_interval(np.min(moved, axis=0), units=clusters, family=statistics.family, domain=(-1, 1))
    return Estimated(interval, len(places), clusters)


def _compute_levels(table: pa.Table, null: str) -> tuple[list[tuple[int, int]], F64, F64] | None:
    """Layer and head of every head, and means over ln N of difference and standard error, (measure, H).

    None if the table has no row of the null with an interval.
    """
    rows = [
        row
        for row in table.to_pylist()
        if row["null_model"] == null and row["measure"] in MEASURES and row["n"] > 1 and row["low"] is not None
    ]
    places = sorted({(row["layer"], row["head"]) for row in rows})
    if not rows:
        return None
    difference, error = np.full((2, len(MEASURES), len(places)), np.nan)
    width = 2 * stats.norm.ppf((1 + LEVEL) / 2)
    for measure, name in enumerate(MEASURES):
        for head, place in enumerate(places):
            curve = sorted(
                (row["n"], row["difference"], (row["high"] - row["low"]) / width)
                for row in rows
                if row["measure"] == name and (row["layer"], row["head"]) == place
            )
            n, apart, spread = (np.array(column, np.float64) for column in zip(*curve, strict=True))
            weights = compute_log_weights(n, int(n[0]), int(n[-1]))
            difference[measure, head], error[measure, head] = weights @ apart, weights @ spread
    return places, difference, error
