"""The geometry of s_N: its norm, with and without the sink and the last token, and its cosines with both."""

from dagster_project.analysis.layer_means import LayerMeans, build_mean_rows
from dagster_project.analysis.passes import Block
from dagster_project.analysis.sources import Rows, Sources
from geometry.statistics.moments import Mean, average

NUMBERS = ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last")
"""The arrays of the metrics, and columns of the table."""


class Diagnostics:
    """The rows of ``diagnostics``: means over sequences of every head and N."""

    def __init__(self, sources: Sources) -> None:
        self._sequences, self._layer = sources.metrics.sequences, LayerMeans()

    def measure(self, block: Block) -> dict[str, Mean]:
        """The means of one block, (head, N) each."""
        return {name: average(block.read(name)) for name in NUMBERS}

    def add(self, block: Block, measured: dict[str, Mean]) -> Rows:
        """Yield the rows of the layer, once all its sequences are there."""
        if means := self._layer.join(block, measured):
            yield "diagnostics", build_mean_rows(block, self._sequences, means)

    def finish(self) -> Rows:
        """Nothing is left."""
        yield from ()
