"""How attention on the sink and separation change with depth: means by layer, and the step between layers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Samples
from geometry.arrays import F64, I64
from geometry.statistics.intervals import DIFFERENCE, SHARE
from geometry.statistics.steps import Step, measure_step

LEAST_LAYERS = 4
"""Layers that a profile needs: with fewer, a step and a slope cannot be told apart."""

QUANTITIES = {
    "sink_weight": ("attention_rows", "weight of the sink"),
    "recall": ("head_levels", "mean Recall over ln N"),
    "precision_excess": ("head_levels", "mean Precision above its floor over ln N"),
}
"""Quantities of layers: the table they are read from, and what they are."""

MEASURES = {
    name: measure
    for quantity, (_, meaning) in QUANTITIES.items()
    for name, measure in {
        f"{quantity}_before_step": Measure(f"{meaning} before its step over layers", "before the step", SHARE),
        f"{quantity}_after_step": Measure(f"{meaning} after its step over layers", "after the step", SHARE),
        f"{quantity}_step": Measure(
            f"{meaning} after less before its step over layers, in each sequence where the others have it",
            "after less before the step",
            DIFFERENCE,
        ),
        f"{quantity}_step_agreement": Measure(
            f"share of the sequences whose {meaning} has its step over layers where the others have it",
            "share with the step there",
            SHARE,
        ),
        f"{quantity}_step_over_slope": Measure(
            f"R² over layers of a step of the {meaning} minus that of a slope, as the other sequences predict both",
            "R² of a step minus that of a slope",
        ),
    }.items()
}

CLAIMS: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The means of a quantity over the heads of each layer."""

    layers: I64
    """Numbers of the layers that have the quantity, (L,)."""
    values: F64
    """Means over their heads, (S, L)."""
    step: Step | None
    """Its step; None for too few layers or sequences."""


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
    return Profile(layers, values, measure_step(values) if enough else None)


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    heads = len(evidence.heads["layer"])
    samples: dict[str, Sample] = {}
    for quantity, profile in compute_profiles(evidence).items():
        if profile.step is None:
            continue
        step = profile.step
        samples |= {
            f"{quantity}_before_step": Sample(step.before, heads),
            f"{quantity}_after_step": Sample(step.after, heads),
            f"{quantity}_step": Sample(step.after - step.before, heads),
            f"{quantity}_step_agreement": Sample(step.agrees, heads),
        }
        if not np.isnan(step.over_slope).all():
            samples[f"{quantity}_step_over_slope"] = Sample(step.over_slope, heads)
    return samples
