"""The assets between metrics and warehouse: each computes a few small tables, of means, fits and sources of figures."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from dagster_project.analysis.cluster import select_scheduler, use_scheduler
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Provenance,
    Work,
    wrap_place,
)
from dagster_project.study.settings import AnalysisSettings
from reports.findings.numbers import count
from storage.errors import UserError
from storage.files.parts import (
    count_rows,
    is_whole,
    list_made,
    locate_part,
    read_inputs,
    remove_others,
    write_parts,
)
from storage.files.places import LocalPlace, Place

if TYPE_CHECKING:
    from dagster_project.analysis.sources import Rows, Sources

COMPUTED_BY = ("dask", "numba", "numpy", "scipy")
"""The libraries whose versions are recorded with the tables."""


@dataclass(frozen=True)
class Tables:
    """An asset that computes tables: what ``Asset`` says of it, and how they are computed.

    The function ``compute_NAME`` of the ``module`` of ``dagster_project.analysis``, which is imported when it is
    called, yields their rows.
    """

    name: str
    module: str
    about: str
    tables: tuple[str, ...]
    version: int
    """That of the numbers, raised when their computation changes, so that they are rebuilt."""
    after: tuple[Asset, ...] = ()
    """The assets whose tables it reads."""
    settings: tuple[str, ...] = ()
    """Fields of the analysis settings."""
    reads: tuple[str, ...] = ()
    parallel: bool = False
    """Whether it has tasks for ``dagster_project.analysis.cluster.run_in_parallel``, so that it can use a cluster."""
    kinds: tuple[str, ...] = ("dask", "parquet")
    pool: str | None = None
    is_wanted: Callable[[AnalysisSettings], bool] = lambda _: True

    def build_asset(self) -> Asset:
        """The record of the asset."""
        return Asset(
            name=self.name,
            about=self.about,
            parents=("selection_metrics", *(asset.name for asset in self.after)),
            kinds=self.kinds,
            version=lambda: str(self.version),
            make=self.make,
            compare=self.compare,
            places=wrap_place(lambda home, study: LocalPlace(home.parts(study))),
            settings=tuple(f"analysis.{field}" for field in self.settings),
            reads=self.reads,
            tables=self.tables,
            locate_parts=self.locate_parts,
            pool=self.pool,
            is_wanted=lambda study: self.is_wanted(study.analysis),
        )

    def build_inputs(self, work: Work) -> dict[str, Any] | None:
        """What the tables are made from, as JSON: versions, settings, and the provenance of tensors and metrics.

        None without tensors.
        """
        if work.metrics is None:
            return None
        made_from = work.metrics.made_of
        return {
            "step": self.name,
            "versions": {asset.name: int(asset.version()) for asset in self.after} | {self.name: self.version},
            "settings": work.study.analysis.model_dump(mode="json", include=set(self.settings)),
            "metrics": {part: value for part, value in made_from.items() if part != "analysis"},
        }

    def locate_parts(self, work: Work) -> dict[str, Place]:
        """The part of each table, as ``Asset.locate_parts``."""
        inputs, folder = self.build_inputs(work), LocalPlace(work.home.parts(work.name))
        return {} if inputs is None else {table: locate_part(folder, table, inputs) for table in self.tables}

    def compare(self, work: Work) -> tuple[Provenance | str, Provenance | None]:
        """As ``Asset.compare``: they were made as expected if all parts are there, else as the first other was."""
        inputs, folder = self.build_inputs(work), LocalPlace(work.home.parts(work.name))
        now = None if inputs is None else self._parse_provenance(inputs)
        current = self.locate_parts(work).values()
        if current and all(map(is_whole, current)):
            return now or MISSING, now
        if any(part.exists() for part in current):
            return UNREADABLE, now
        others = map(read_inputs, list_made(folder, self.name))
        made = next((made for made in others if made and made["inputs"] != inputs), None)
        return MISSING if made is None else self._parse_provenance(made["inputs"]), now

    def _parse_provenance(self, provenance: Mapping[str, Any]) -> Provenance:
        versions, settings = provenance.get("versions", {}), provenance.get("settings", {})
        inputs = {asset.name: versions.get(asset.name) for asset in self.after}
        return Provenance(
            versions.get(self.name),
            {f"analysis.{field}": settings.get(field) for field in self.settings},
            inputs | {"metrics": provenance.get("metrics")},
        )

    def make(self, work: Work) -> AssetResult:
        """Compute the tables, unless they are current or the study does not ask for them.

        ``UserError`` if another process works on the study, or inputs are incomplete or stale; or as for
        ``use_scheduler``.
        """
        started, home, name = time.monotonic(), work.home, work.name
        if not self.is_wanted(work.study.analysis):
            return AssetResult({"dagster/row_count": 0})
        with work.lock():
            sources, paths = work.sources, self.locate_parts(work)
            if work.force or not all(map(is_whole, paths.values())):
                self._write(work, sources)
            rows = {table: count_rows(path) for table, path in paths.items()}
        seconds, what = time.monotonic() - started, self.name.replace("_", " ")
        counts = {f"rows of {table}": count for table, count in rows.items()}
        return AssetResult(
            {"path": home.parts(name), "dagster/row_count": sum(rows.values()), **counts, "seconds": seconds},
            message=f"{what}, {count(sum(rows.values()), 'row')} ({seconds:.1f} s)",
        )

    def _write(self, work: Work, sources: "Sources") -> None:
        """Compute the tables and write them."""
        check_tables(work, self.after)
        read = {table: path for asset in self.after for table, path in asset.locate_parts(work).items()}
        module = import_module(f"dagster_project.analysis.{self.module}")
        compute: Callable[[Sources], Rows] = getattr(module, f"compute_{self.name}")
        rows, inputs = compute(replace(sources, parts=read)), self.build_inputs(work) or {}
        remove_others(sources.folder, inputs)
        with use_scheduler(select_scheduler(work.study) if self.parallel else "threads"):
            write_parts(sources.folder, self.tables, rows, inputs, read_versions())


@cache
def read_versions() -> dict[str, str]:
    """The versions of ``COMPUTED_BY``."""
    return {library: metadata.version(library) for library in COMPUTED_BY}


def check_tables(work: Work, assets: tuple[Asset, ...]) -> None:
    """Refuse to read tables of these assets that are missing, or not made from the study's metrics and settings."""
    for asset in assets:
        if asset.explain_staleness(work):
            raise UserError(
                f"The tables of '{asset.name}' in {work.home.parts(work.name)} are missing, damaged or "
                f"made from other metrics; run: attention-geometry run {work.name}"
            )


FITS = (
    Tables(
        "assumption_norms",
        "values",
        "Assumption 1: the norms of the value states of every KV head, and how much they vary.",
        tables=("assumption_norms", "assumption_norms_by_sequence", "value_norm_by_position"),
        version=4,
    ).build_asset(),
    Tables(
        "assumption_similarity",
        "fits",
        "Assumption 2: fits of the mean cosine against distance, for every KV head and for the whole model.",
        tables=(
            *("assumption_similarity", "assumption_similarity_model", "assumption_similarity_by_sequence"),
            "cosine_by_distance",
        ),
        version=5,
        parallel=True,
    ).build_asset(),
    Tables(
        "assumption_weights",
        "fits",
        "Assumption 3: fits of the four phases to the mean weight by position, for every query, head and the model.",
        tables=("assumption_weights", "assumption_weights_model", "assumption_weights_by_sequence"),
        version=3,
        reads=("attention",),
        parallel=True,
    ).build_asset(),
)
"""The fits of the three assumptions, from which heads are drawn."""

MEANS = Tables(
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
).build_asset()
"""The means, from which budgets of keys are taken."""

SUMMARIES: tuple[Asset, ...] = (
    *FITS,
    Tables(
        "separability",
        "chance",
        "Precision, Recall, F, specificity and AUC of every head, random selections and shuffled value states.",
        tables=("separability", "separability_model", "separability_by_sequence", "head_auc", "separation_curves"),
        version=3,
        settings=("nulls",),
        reads=("attention", "values"),
        parallel=True,
    ).build_asset(),
    Tables(
        "temperature",
        "temperature",
        "Selections at other temperatures: Precision, Recall, AUC, distance, and sensitivity.",
        tables=("temperature_means", "sensitivity"),
        version=2,
        settings=("temperatures", "temperature_sequences"),
        reads=("attention", "values"),
        parallel=True,
    ).build_asset(),
    Tables(
        "top_keys",
        "values",
        "The 16 keys of largest weight of every head, one by one: position, contribution, distance from s_N.",
        tables=("top_keys",),
        version=2,
        reads=("attention", "values"),
    ).build_asset(),
    Tables(
        "parameter_effects",
        "expectation",
        "Table 1: effects of the parameters on the printed lower bounds of heads drawn from the assumptions as fitted.",
        tables=("parameter_effects",),
        version=2,
        after=FITS,
        settings=("kappas", "scale"),
    ).build_asset(),
    Tables(
        "regimes_by_sequence",
        "regimes",
        "Table 2: where regimes begin and how Δ/B changes within them, for every query, sequence and head.",
        tables=("regimes_by_sequence",),
        version=1,
        after=(FITS[2],),
        settings=("scale",),
        reads=("attention",),
    ).build_asset(),
    MEANS,
    Tables(
        "head_patterns",
        "patterns",
        "What heads look at, such as the sink, the token before or earlier copies, and how many times chance that is.",
        tables=("head_patterns", "head_pattern_means"),
        version=2,
    ).build_asset(),
    Tables(
        "contributions",
        "values",
        "Weight and contribution of each position, and cosines of its value state with the sink's and the last's.",
        tables=("attention_by_position",),
        version=3,
        reads=("attention",),
    ).build_asset(),
    Tables(
        "value_directions",
        "values",
        "Principal directions of the value states of every KV head, and the value states of sequence 0 along them.",
        tables=("principal_directions", "value_directions"),
        version=1,
        reads=("values",),
    ).build_asset(),
    Tables(
        "bounds_in_expectation",
        "expectation",
        "The bounds compared with means over heads drawn from the assumptions as fitted to the study, over its grid.",
        tables=("monte_carlo",),
        version=1,
        after=FITS,
        settings=("monte_carlo", "kappas"),
        parallel=True,
        is_wanted=lambda analysis: analysis.monte_carlo is not None,
    ).build_asset(),
    Tables(
        "head_ablation",
        "interventions",
        "The increase of the model's loss when a head's output is replaced, for every head, with intervals.",
        tables=("head_ablation", "head_ablation_by_sequence"),
        version=3,
        settings=("effects",),
        kinds=("torch", "parquet"),
        pool="gpu",
        is_wanted=lambda analysis: analysis.effects is not None,
    ).build_asset(),
    Tables(
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
    ).build_asset(),
)
"""The records of these assets, each after its parents; those that take longest begin the lists."""
