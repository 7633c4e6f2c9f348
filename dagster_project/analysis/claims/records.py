"""What a measure and a claim are: declarations, and the numbers of a study."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.claims.evidence import Evidence, Sample
from geometry.statistics.intervals import DIFFERENCE, UNBOUNDED, Domain
from reports.findings.claims import BEYOND

Direction = Literal["<=", "<", ">=", ">"]  # Comparison of a measure with a threshold that supports a claim


@dataclass(frozen=True)
class Scale:
    """The scale on which a measure is averaged and tested."""

    forward: Callable[[float], float]
    back: Callable[[NDArray[np.float64] | float], NDArray[np.float64]]


PLAIN = Scale(float, np.asarray)
FISHER = Scale(lambda r: float(np.arctanh(r)), np.tanh)  # Fisher's z of a correlation
LOGARITHM = Scale(lambda ratio: float(np.log(ratio)), np.exp)  # The natural logarithm of a ratio


@dataclass(frozen=True)
class Measure:
    """One number of a model."""

    meaning: str  # What it is, in a clause; for readers of the table `measures`
    label: str  # Its name in a sentence, such as “Recall”
    domain: Domain = UNBOUNDED
    scale: Scale = PLAIN


def correlation(meaning: str, label: str = "correlation") -> Measure:
    """A correlation over heads, by its meaning."""
    return Measure(meaning, label, DIFFERENCE, FISHER)


def beyond(measure: str, label: str, domain: Domain = DIFFERENCE) -> dict[str, Measure]:
    """The declaration of a measure's difference from that of random weights, by name."""
    meaning = f"{measure} minus that of random weights, on the same sequences"
    return {f"{measure}{BEYOND}": Measure(meaning, label, domain)}


@dataclass(frozen=True)
class Part:
    """One comparison of a claim."""

    measure: str
    direction: Direction
    threshold: float = 0.0

    @property
    def above(self) -> bool:
        """Whether values above the threshold support it."""
        return self.direction in {">", ">="}


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, as comparisons of measures with thresholds."""

    name: str
    source: str  # Figure, table or section of the paper that makes it
    statement: str  # What the paper says
    parts: tuple[Part, ...]  # All of these must hold; of alternatives, one
    clause: str  # The claim as a clause that a sentence about a study can state
    denial: str  # Its negation
    shown_by: str  # The figure of the report that shows its measures
    null: str  # What would satisfy it without the model, and how the test rules that out
    least_rows: int = 2
    rows_of: str = "heads"
    premise: str | None = None  # What a study needs to test it, in words
    explain_gap: Callable[[Evidence], str | None] = field(default=lambda _: None)
    """Why a study lacks that; None if it does not."""
    alternatives: bool = False

    @property
    def exceeds_twin(self) -> bool:
        """Whether it is itself a difference from random weights, which have no model to differ from."""
        return any(part.measure.endswith(BEYOND) for part in self.parts)


def require(statement: str, otherwise: str) -> Callable[[Evidence], str | None]:
    """What explains a gap: the number that a statement asks for is 0."""
    return lambda evidence: None if evidence.count(statement) else otherwise


LEAST_BEYOND = 0.02
"""Least difference from random weights of a claim that needs one: models of random weights differ by as much among
themselves (``benchmarks.random_weights``)."""

Samples = Mapping[str, Sample]  # The measures of a study, by name; those that it does not have are left out
