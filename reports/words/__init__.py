"""What the numbers say, in sentences.

Holds one function per figure that turns its rows into a finding, and the writing of numbers. Every number in a sentence
comes from the rows. What does not belong here: drawing (``reports.charts``) and HTML (``reports.page``).

Rows are those of the query that each docstring names. Modules: ``numbers`` (writing them), ``headlines``, and one per
subject: ``claims``, ``separation``, ``bounds``, ``values``, ``attention``, ``recovery``.
"""

from reports.words.attention import VARIANTS, attention, phases, sink_by_layer, weight_variants
from reports.words.bounds import (
    EFFECTS,
    FAMILIES,
    VERDICTS,
    best,
    coverage,
    effects,
    failures,
    gap_points,
    gaps,
    margins,
    monte_carlo,
    printed,
    regimes,
    width,
)
from reports.words.claims import claims
from reports.words.headlines import Headline, headlines
from reports.words.numbers import NAMES, Row, count, known, number, percent, place, sentences, spans
from reports.words.recovery import PARAMETERS, compared, recovered, recovery
from reports.words.separation import (
    ELBOW_RANGES,
    beside_bounds,
    blanks,
    course,
    elbow_of_model,
    elbows,
    envelope,
    extremes,
    fewer_heads,
)
from reports.words.values import (
    norm_variation,
    similarity_curve,
    similarity_errors,
    similarity_of_model,
    value_norm,
)

__all__ = [
    "EFFECTS",
    "ELBOW_RANGES",
    "FAMILIES",
    "NAMES",
    "PARAMETERS",
    "VARIANTS",
    "VERDICTS",
    "Headline",
    "Row",
    "attention",
    "beside_bounds",
    "best",
    "blanks",
    "claims",
    "compared",
    "count",
    "course",
    "coverage",
    "effects",
    "elbow_of_model",
    "elbows",
    "envelope",
    "extremes",
    "failures",
    "fewer_heads",
    "gap_points",
    "gaps",
    "headlines",
    "known",
    "margins",
    "monte_carlo",
    "norm_variation",
    "number",
    "percent",
    "phases",
    "place",
    "printed",
    "recovered",
    "recovery",
    "regimes",
    "sentences",
    "similarity_curve",
    "similarity_errors",
    "similarity_of_model",
    "sink_by_layer",
    "spans",
    "value_norm",
    "weight_variants",
    "width",
]
