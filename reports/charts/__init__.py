"""The charts: one function each, tables in, an Altair chart out.

Every chart has a title, axis titles with units, tooltips, and a description for those who do not see it. Colours and
sizes come from ``reports.theme`` by style names. What does not belong here: SQL (``sql/queries``), captions
(``reports.words``) and pages (``reports.page``).

Tables are the answers to the query that each docstring names; they must have at least one row that can be drawn, unless
the docstring says otherwise. Modules: ``separation``, ``bounds``, ``values``, ``attention``, ``recovery``; what they
share stands in ``elements`` and ``positions``.
"""

from reports.charts.attention import attention, sink_by_layer, weight_variants
from reports.charts.bounds import coverage, gaps, margins, width
from reports.charts.recovery import recovery
from reports.charts.separation import bounded, elbows, precision_map, precision_recall, recall_map
from reports.charts.values import norm_variation, similarity, similarity_errors, value_norm

__all__ = [
    "attention",
    "bounded",
    "coverage",
    "elbows",
    "gaps",
    "margins",
    "norm_variation",
    "precision_map",
    "precision_recall",
    "recall_map",
    "recovery",
    "similarity",
    "similarity_errors",
    "sink_by_layer",
    "value_norm",
    "weight_variants",
    "width",
]
