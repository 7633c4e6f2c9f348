"""The assets between metrics and warehouse: means, fits, bounds in expectation and sources of figures."""

from dagster_project.steps.assets import Asset
from dagster_project.steps.summaries.arithmetic import arithmetic
from dagster_project.steps.summaries.chance import separability
from dagster_project.steps.summaries.claims import claim_estimates
from dagster_project.steps.summaries.contributions import contributions
from dagster_project.steps.summaries.convergence import convergence
from dagster_project.steps.summaries.directions import value_directions
from dagster_project.steps.summaries.distances import distances
from dagster_project.steps.summaries.expectation import effects, expectation
from dagster_project.steps.summaries.fits import similarity, weights
from dagster_project.steps.summaries.interventions import (
    ABLATION_VERSION,
    SPARSIFIED_VERSION,
    head_ablation,
    sparsified_loss,
)
from dagster_project.steps.summaries.logits import logit_range
from dagster_project.steps.summaries.means import selection_means
from dagster_project.steps.summaries.norms import norms
from dagster_project.steps.summaries.positions import attention_by_position
from dagster_project.steps.summaries.regimes import regimes_by_sequence
from dagster_project.steps.summaries.sink import sink_effect
from dagster_project.steps.summaries.temperature import temperature
from dagster_project.steps.tables import tables_asset

FITS = (
    tables_asset("assumption_norms", norms, tables=("assumption_norms",), version=2),
    tables_asset(
        "assumption_similarity",
        similarity,
        tables=("assumption_similarity", "assumption_similarity_model"),
        version=2,
        parallel=True,
    ),
    tables_asset(
        "assumption_weights",
        weights,
        tables=("assumption_weights", "assumption_weights_model"),
        version=2,
        reads=("attention",),
        parallel=True,
    ),
)
"""The fits of the three assumptions, from which heads are drawn."""

REGIMES = tables_asset(
    "regimes_by_sequence",
    regimes_by_sequence,
    tables=("regimes_by_sequence",),
    version=1,
    after=(FITS[2],),
    settings=("scale",),
    reads=("attention",),
)
"""Table 2, which claims are about."""

MEANS = tables_asset("selection_means", selection_means, tables=("selection_means", "selection_means_model"), version=3)
"""The means, from which budgets of keys are taken."""

LIMITS = (
    tables_asset(
        "distances",
        distances,
        tables=("distance_means", "distance_means_model", "distance_fits", "distance_fits_model"),
        version=1,
    ),
    tables_asset(
        "convergence",
        convergence,
        tables=("convergence", "convergence_model", "convergence_fits", "convergence_fits_model"),
        version=1,
    ),
    tables_asset(
        "temperature",
        temperature,
        tables=("temperature_means", "temperature_concentration", "sensitivity"),
        version=1,
        settings=("temperatures", "temperature_sequences"),
        reads=("attention", "values"),
        parallel=True,
    ),
    tables_asset("logit_range", logit_range, tables=("logit_range",), version=1, reads=("attention",)),
)
"""How well a softmax can select at all: against N, the number of keys, and the temperature."""

EFFECTS = (
    tables_asset(
        "head_ablation",
        head_ablation,
        tables=("head_ablation",),
        version=ABLATION_VERSION,
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
    ),
    tables_asset(
        "sparsified_loss",
        sparsified_loss,
        tables=("sparsified_loss", "sparsified_loss_by_sequence"),
        version=SPARSIFIED_VERSION,
        after=(MEANS,),
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
    ),
)
"""The loss of the model without a head, and with fewer keys, which claims are about."""

SEPARABILITY = tables_asset(
    "separability",
    separability,
    tables=("separability", "separability_model", "separation_curves"),
    version=1,
    settings=("nulls",),
    reads=("attention", "values"),
    parallel=True,
)
"""The comparison with chance, which claims are about."""

SUMMARIES: tuple[Asset, ...] = (
    *FITS,
    REGIMES,
    tables_asset(
        "attention_by_position",
        attention_by_position,
        tables=("attention_by_position",),
        version=1,
        reads=("attention",),
    ),
    MEANS,
    tables_asset("sink_effect", sink_effect, tables=("sink_effect",), version=1),
    SEPARABILITY,
    tables_asset(
        "arithmetic", arithmetic, tables=("arithmetic",), version=1, reads=("attention", "values"), parallel=True
    ),
    tables_asset("contributions", contributions, tables=("contributions",), version=1, reads=("attention",)),
    tables_asset(
        "value_directions",
        value_directions,
        tables=("principal_directions", "value_directions"),
        version=1,
        reads=("values",),
    ),
    tables_asset(
        "bounds_in_expectation",
        expectation,
        tables=("monte_carlo",),
        version=1,
        after=FITS,
        settings=("monte_carlo", "kappas"),
        parallel=True,
    ),
    tables_asset(
        "parameter_effects",
        effects,
        tables=("parameter_effects",),
        version=2,
        after=FITS,
        settings=("kappas", "scale"),
    ),
    *EFFECTS,
    *LIMITS,
    tables_asset(
        "claim_estimates",
        claim_estimates,
        tables=("claim_estimates",),
        version=2,
        after=(REGIMES, SEPARABILITY, *EFFECTS),
        settings=("kappas", "scale"),
        reads=("attention",),
        parallel=True,
    ),
)
"""The records of these assets, in an order in which they can be made."""
