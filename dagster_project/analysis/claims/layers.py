"""How attention on the sink and separation change over layers: with depth, and between kinds of layers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Samples
from geometry.arrays import F64, I64
from geometry.statistics.arrangements import Change, measure_change
from geometry.statistics.intervals import DIFFERENCE, SHARE

LEAST_LAYERS = 4  # Layers that a profile needs; of fewer, no order is rare

QUANTITIES = {
    "sink_weight": ("attention_rows", "weight of the sink"),
    "recall": ("head_levels", "mean Recall over ln N"),
    "precision_excess": ("head_levels", "mean Precision above its floor over ln N"),
}
"""Quantities of layers: the table they are read from, and what they are."""

PARTS = {
    "first_half": "first half of the layers",
    "last_half": "last half of the layers",
    "full": "layers of full attention",
    "local": "layers of local attention",
}

MEASURES = {
    name: measure
    for quantity, (_, meaning) in QUANTITIES.items()
    for name, measure in {
        **{f"{quantity}_{part}": Measure(f"{meaning} in the {where}", where, SHARE) for part, where in PARTS.items()},
        f"{quantity}_over_depth": Measure(
            f"{meaning} in the last half of the layers minus that in the first", "last minus first half", DIFFERENCE
        ),
        f"{quantity}_over_kinds": Measure(
            f"{meaning} in layers of full attention minus that in layers of local attention",
            "full minus local attention",
            DIFFERENCE,
        ),
    }.items()
}

CLAIMS: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The means of a quantity over the heads of each layer."""

    layers: I64  # Numbers of the layers that have the quantity, (L,)
    values: F64  # Means over their heads, (S, L)
    change: Change | None  # How they differ; None for too few layers or sequences


def compute_profiles(evidence: Evidence) -> Mapping[str, Profile]:
    """The profile of each quantity, at the last query."""
    return {quantity: _compute_profile(evidence, quantity, table) for quantity, (table, _) in QUANTITIES.items()}


def _compute_profile(evidence: Evidence, quantity: str, table: str) -> Profile:
    columns = evidence.ask_columns(
        f"""
        SELECT sequence, layer, avg({quantity}) AS value
        FROM {table}
        WHERE query = $query AND {quantity} IS NOT NULL
        GROUP BY sequence, layer
        """
    )
    layers, places = np.unique(columns["layer"].astype(np.int64), return_inverse=True)
    values = np.full((evidence.sequences, len(layers)), np.nan)
    values[columns["sequence"].astype(np.int64), places] = columns["value"]
    known = ~np.isnan(values).any(axis=0)
    layers, values = layers[known], values[:, known]
    enough = len(layers) >= LEAST_LAYERS and len(values) > 1
    full = ~np.isin(layers, evidence.local_layers)
    return Profile(layers, values, measure_change(values, full) if enough else None)


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    heads = len(evidence.heads["layer"])
    samples: dict[str, Sample] = {}
    for quantity, profile in compute_profiles(evidence).items():
        change = profile.change
        if change is None:
            continue
        samples |= {
            f"{quantity}_first_half": Sample(change.first_half, heads),
            f"{quantity}_last_half": Sample(change.last_half, heads),
            f"{quantity}_over_depth": Sample(change.last_half - change.first_half, heads, arranged=change.by_depth),
        }
        if change.full is not None and change.local is not None:
            samples |= {
                f"{quantity}_full": Sample(change.full, heads),
                f"{quantity}_local": Sample(change.local, heads),
                f"{quantity}_over_kinds": Sample(change.full - change.local, heads, arranged=change.by_kind),
            }
    return samples
