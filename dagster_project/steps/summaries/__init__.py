"""The assets between metrics and warehouse: means, fits, bounds in expectation and sources of figures."""

from dagster_project.steps.assets import Asset
from dagster_project.steps.summaries.arithmetic import compute_arithmetic
from dagster_project.steps.summaries.chance import compute_separability
from dagster_project.steps.summaries.claims import compute_claim_estimates
from dagster_project.steps.summaries.contributions import compute_contributions
from dagster_project.steps.summaries.convergence import compute_convergence
from dagster_project.steps.summaries.directions import compute_value_directions
from dagster_project.steps.summaries.distances import compute_distances
from dagster_project.steps.summaries.expectation import compute_bounds_in_expectation, compute_parameter_effects
from dagster_project.steps.summaries.fits import fit_assumption_similarity, fit_assumption_weights
from dagster_project.steps.summaries.interventions import (
    ABLATION_VERSION,
    SPARSIFIED_VERSION,
    compute_head_ablation,
    compute_sparsified_loss,
)
from dagster_project.steps.summaries.logits import compute_logit_range
from dagster_project.steps.summaries.means import compute_selection_means
from dagster_project.steps.summaries.norms import compute_assumption_norms
from dagster_project.steps.summaries.positions import compute_attention_by_position
from dagster_project.steps.summaries.regimes import compute_regimes_by_sequence
from dagster_project.steps.summaries.sink import compute_sink_effect
from dagster_project.steps.summaries.temperature import compute_temperature
from dagster_project.steps.tables import make_tables_asset

FITS = (
    make_tables_asset("assumption_norms", compute_assumption_norms, tables=("assumption_norms",), version=2),
    make_tables_asset(
        "assumption_similarity",
        fit_assumption_similarity,
        tables=("assumption_similarity", "assumption_similarity_model"),
        version=2,
        parallel=True,
    ),
    make_tables_asset(
        "assumption_weights",
        fit_assumption_weights,
        tables=("assumption_weights", "assumption_weights_model"),
        version=2,
        reads=("attention",),
        parallel=True,
    ),
)
"""The fits of the three assumptions, from which heads are drawn."""

REGIMES = make_tables_asset(
    "regimes_by_sequence",
    compute_regimes_by_sequence,
    tables=("regimes_by_sequence",),
    version=1,
    after=(FITS[2],),
    settings=("scale",),
    reads=("attention",),
)
"""Table 2, which claims are about."""

MEANS = make_tables_asset(
    "selection_means", compute_selection_means, tables=("selection_means", "selection_means_model"), version=3
)
"""The means, from which budgets of keys are taken."""

LIMITS = (
    make_tables_asset(
        "distances",
        compute_distances,
        tables=("distance_means", "distance_means_model", "distance_fits", "distance_fits_model"),
        version=1,
    ),
    make_tables_asset(
        "convergence",
        compute_convergence,
        tables=("convergence", "convergence_model", "convergence_fits", "convergence_fits_model"),
        version=1,
    ),
    make_tables_asset(
        "temperature",
        compute_temperature,
        tables=("temperature_means", "temperature_concentration", "sensitivity"),
        version=1,
        settings=("temperatures", "temperature_sequences"),
        reads=("attention", "values"),
        parallel=True,
    ),
    make_tables_asset("logit_range", compute_logit_range, tables=("logit_range",), version=1, reads=("attention",)),
)
"""How well a softmax can select at all: against N, the number of keys, and the temperature."""

EFFECTS = (
    make_tables_asset(
        "head_ablation",
        compute_head_ablation,
        tables=("head_ablation",),
        version=ABLATION_VERSION,
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
    ),
    make_tables_asset(
        "sparsified_loss",
        compute_sparsified_loss,
        tables=("sparsified_loss", "sparsified_loss_by_sequence"),
        version=SPARSIFIED_VERSION,
        after=(MEANS,),
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
    ),
)
"""The loss of the model without a head, and with fewer keys, which claims are about."""

SEPARABILITY = make_tables_asset(
    "separability",
    compute_separability,
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
    make_tables_asset(
        "attention_by_position",
        compute_attention_by_position,
        tables=("attention_by_position",),
        version=1,
        reads=("attention",),
    ),
    MEANS,
    make_tables_asset("sink_effect", compute_sink_effect, tables=("sink_effect",), version=1),
    SEPARABILITY,
    make_tables_asset(
        "arithmetic",
        compute_arithmetic,
        tables=("arithmetic",),
        version=1,
        reads=("attention", "values"),
        parallel=True,
    ),
    make_tables_asset(
        "contributions", compute_contributions, tables=("contributions",), version=1, reads=("attention",)
    ),
    make_tables_asset(
        "value_directions",
        compute_value_directions,
        tables=("principal_directions", "value_directions"),
        version=1,
        reads=("values",),
    ),
    make_tables_asset(
        "bounds_in_expectation",
        compute_bounds_in_expectation,
        tables=("monte_carlo",),
        version=1,
        after=FITS,
        settings=("monte_carlo", "kappas"),
        parallel=True,
    ),
    make_tables_asset(
        "parameter_effects",
        compute_parameter_effects,
        tables=("parameter_effects",),
        version=2,
        after=FITS,
        settings=("kappas", "scale"),
    ),
    *EFFECTS,
    *LIMITS,
    make_tables_asset(
        "claim_estimates",
        compute_claim_estimates,
        tables=("claim_estimates",),
        version=2,
        after=(REGIMES, SEPARABILITY, *EFFECTS),
        settings=("kappas", "scale"),
        reads=("attention",),
        parallel=True,
    ),
)
"""The records of these assets, in an order in which they can be made."""
