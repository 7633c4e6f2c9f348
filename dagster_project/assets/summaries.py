"""The assets between metrics and warehouse: means, fits, bounds in expectation and sources of figures."""

from dagster_project.assets.asset import Asset
from dagster_project.assets.tables import make_tables_asset

FITS = (
    make_tables_asset(
        "assumption_norms",
        "norms",
        "Assumption 1: the norms of the value states of every KV head, and how much they vary.",
        tables=("assumption_norms", "assumption_norms_by_sequence", "value_norm_by_position"),
        version=4,
    ),
    make_tables_asset(
        "assumption_similarity",
        "fits",
        "Assumption 2: fits of the mean cosine against distance, for every KV head and for the whole model.",
        tables=(
            *("assumption_similarity", "assumption_similarity_model", "assumption_similarity_by_sequence"),
            "cosine_by_distance",
        ),
        version=5,
        parallel=True,
    ),
    make_tables_asset(
        "assumption_weights",
        "fits",
        "Assumption 3: fits of the four phases to the mean weight by position, for every query, head and the model.",
        tables=("assumption_weights", "assumption_weights_model", "assumption_weights_by_sequence"),
        version=3,
        reads=("attention",),
        parallel=True,
    ),
)
"""The fits of the three assumptions, from which heads are drawn."""

MEANS = make_tables_asset(
    "selection_means",
    "means",
    "Means of every query, head and N: Precision, Recall, F, specificity, bounds, coverage, s_N, distances; keys for a "
    "share of the weight; the correlation of Recall and ρ_0.",
    tables=(
        *("selection_means", "selection_means_model", "head_levels", "bound_means", "diagnostics"),
        *("key_budgets", "key_budgets_layer", "key_budgets_model", "sink_effect", "coverage_by_sequence"),
        *("distance_means", "distance_means_model", "convergence_model", "limit_exponents"),
    ),
    version=7,
    settings=("kappas", "scale"),
)
"""The means, from which budgets of keys are taken."""

SUMMARIES: tuple[Asset, ...] = (
    *FITS,
    make_tables_asset(
        "separability",
        "chance",
        "Precision, Recall, F, specificity and AUC of every head, random selections and shuffled value states.",
        tables=("separability", "separability_model", "separability_by_sequence", "head_auc", "separation_curves"),
        version=3,
        settings=("nulls",),
        reads=("attention", "values"),
        parallel=True,
    ),
    make_tables_asset(
        "temperature",
        "temperature",
        "Selections at other temperatures: Precision, Recall, AUC, distance, and sensitivity.",
        tables=("temperature_means", "sensitivity"),
        version=2,
        settings=("temperatures", "temperature_sequences"),
        reads=("attention", "values"),
        parallel=True,
    ),
    make_tables_asset(
        "top_keys",
        "top_keys",
        "The 16 keys of largest weight of every head, one by one: position, contribution, distance from s_N.",
        tables=("top_keys",),
        version=2,
        reads=("attention", "values"),
    ),
    make_tables_asset(
        "parameter_effects",
        "expectation",
        "Table 1: effects of the parameters on the printed lower bounds of heads drawn from the assumptions as fitted.",
        tables=("parameter_effects",),
        version=2,
        after=FITS,
        settings=("kappas", "scale"),
    ),
    make_tables_asset(
        "regimes_by_sequence",
        "regimes",
        "Table 2: where regimes begin and how Δ/B changes within them, for every query, sequence and head.",
        tables=("regimes_by_sequence",),
        version=1,
        after=(FITS[2],),
        settings=("scale",),
        reads=("attention",),
    ),
    MEANS,
    make_tables_asset(
        "head_patterns",
        "patterns",
        "What heads look at, such as the sink, the token before or earlier copies, and how many times chance that is.",
        tables=("head_patterns", "head_pattern_means"),
        version=2,
    ),
    make_tables_asset(
        "contributions",
        "contributions",
        "Weight and contribution of each position, and cosines of its value state with the sink's and the last's.",
        tables=("attention_by_position",),
        version=3,
        reads=("attention",),
    ),
    make_tables_asset(
        "value_directions",
        "directions",
        "Principal directions of the value states of every KV head, and the value states of sequence 0 along them.",
        tables=("principal_directions", "value_directions"),
        version=1,
        reads=("values",),
    ),
    make_tables_asset(
        "bounds_in_expectation",
        "expectation",
        "The bounds compared with means over heads drawn from the assumptions as fitted to the study, over its grid.",
        tables=("monte_carlo",),
        version=1,
        after=FITS,
        settings=("monte_carlo", "kappas"),
        parallel=True,
        is_wanted=lambda analysis: analysis.monte_carlo is not None,
    ),
    make_tables_asset(
        "head_ablation",
        "interventions",
        "The increase of the model's loss when a head's output is replaced, for every head, with intervals.",
        tables=("head_ablation", "head_ablation_by_sequence"),
        version=3,
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
        is_wanted=lambda analysis: analysis.effects is not None,
    ),
    make_tables_asset(
        "sparsified_loss",
        "interventions",
        "The increase of the model's loss when queries attend to fewer keys, by policy and budget.",
        tables=("sparsified_loss", "sparsified_loss_by_sequence"),
        version=5,
        after=(MEANS,),
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
        is_wanted=lambda analysis: analysis.effects is not None and bool(analysis.effects.budgets),
    ),
)
"""The records of these assets, each after its parents; those that take longest begin the lists."""
