"""The charts: one function each, tables in, an Altair chart out.

Every chart has a title, axis titles with units, tooltips, and a description for those who do not see it. Colours and
sizes come from ``reports.theme`` by style names.

Tables are the answers to the query that each docstring names; they must have at least one row that can be drawn, unless
the docstring says otherwise. There is one module per subject; what they share stands in ``elements``, ``positions``,
``plane`` and ``labels``.
"""

from reports.charts.attention import attention, sink_by_layer, weight_variants
from reports.charts.bounds import coverage, gaps, margins, width
from reports.charts.chance import chance, chance_map, separation_curves
from reports.charts.contexts import context_elbows, context_labels, context_metric
from reports.charts.explorer import explorer
from reports.charts.geometry import contributions, cosines, dimensions, norms, sphere
from reports.charts.intuition import balls, value_states, weighted
from reports.charts.recovery import recovery
from reports.charts.separation import bounded, elbows, precision_map, precision_recall, recall_map
from reports.charts.sink import sink_effect, sink_effects, sink_heads
from reports.charts.taxonomy import kind_curves, kinds_by_layer, kinds_map, kinds_plane
from reports.charts.values import norm_variation, similarity, similarity_errors, value_norm

__all__ = [
    "attention",
    "balls",
    "bounded",
    "chance",
    "chance_map",
    "context_elbows",
    "context_labels",
    "context_metric",
    "contributions",
    "cosines",
    "coverage",
    "dimensions",
    "elbows",
    "explorer",
    "gaps",
    "kind_curves",
    "kinds_by_layer",
    "kinds_map",
    "kinds_plane",
    "margins",
    "norm_variation",
    "norms",
    "precision_map",
    "precision_recall",
    "recall_map",
    "recovery",
    "separation_curves",
    "similarity",
    "similarity_errors",
    "sink_by_layer",
    "sink_effect",
    "sink_effects",
    "sink_heads",
    "sphere",
    "value_norm",
    "value_states",
    "weight_variants",
    "weighted",
    "width",
]
