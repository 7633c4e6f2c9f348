"""The steps between metrics and warehouse: means, fits, bounds in expectation and sources of figures, as small tables.

Holds ``STEPS``, which says what each step makes and from what; a module each for their work. What does not belong here:
the mathematics (``geometry``), files (``storage``) and when a step runs (``dagster_project.pipeline``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dagster_project.studies import AnalysisSettings
from dagster_project.summaries.contributions import contributions
from dagster_project.summaries.directions import value_directions
from dagster_project.summaries.expectation import effects, expectation
from dagster_project.summaries.fits import similarity, weights
from dagster_project.summaries.means import selection_means
from dagster_project.summaries.norms import norms
from dagster_project.summaries.positions import attention_by_position
from dagster_project.summaries.sink import sink_effect
from dagster_project.summaries.sources import Sources, Tables


@dataclass(frozen=True)
class Step:
    """One step: an asset of the study's partition."""

    name: str
    tables: tuple[str, ...]
    """The tables it makes."""
    version: int
    """Version of the numbers; raised when their computation changes, so that they are made anew."""
    make: Callable[[Sources], Tables]
    after: tuple[str, ...] = ()
    """The steps whose tables it reads."""
    settings: tuple[str, ...] = ()
    """The fields of the analysis settings that decide the numbers."""
    parallel: bool = False
    """Whether it has tasks for ``dagster_project.cluster.in_parallel``, so that a cluster is of use."""

    @property
    def about(self) -> str:
        """What it makes, in a paragraph."""
        return (self.make.__doc__ or "").split("\n\n", maxsplit=1)[0]

    def provenance(self, analysis: AnalysisSettings, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What the tables are made from, as JSON: versions, settings, and the provenance of tensors and metrics."""
        return {
            "step": self.name,
            "versions": {name: STEPS[name].version for name in (*self.after, self.name)},
            "settings": analysis.model_dump(mode="json", include=set(self.settings)),
            "metrics": {part: value for part, value in metrics.items() if part not in {"versions", "analysis"}},
        }


FITS = ("assumption_norms", "assumption_similarity", "assumption_weights")
"""The steps that heads to be drawn are taken from."""

STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step("assumption_norms", ("assumption_norms",), 2, norms),
        Step(
            "assumption_similarity",
            ("assumption_similarity", "assumption_similarity_model"),
            2,
            similarity,
            parallel=True,
        ),
        Step("assumption_weights", ("assumption_weights", "assumption_weights_model"), 2, weights, parallel=True),
        Step("attention_by_position", ("attention_by_position",), 1, attention_by_position),
        Step("selection_means", ("selection_means", "selection_means_model"), 2, selection_means),
        Step("sink_effect", ("sink_effect",), 1, sink_effect),
        Step("contributions", ("contributions",), 1, contributions),
        Step("value_directions", ("principal_directions", "value_directions"), 1, value_directions),
        Step("bounds_in_expectation", ("monte_carlo",), 1, expectation, FITS, ("monte_carlo", "kappas"), parallel=True),
        Step("parameter_effects", ("parameter_effects",), 1, effects, FITS, ("kappas", "scale")),
    )
}
"""Every step by name, in an order in which they can be made."""
