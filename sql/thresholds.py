"""The thresholds of the taxonomy of heads, each declared once with its default and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """One threshold: a parameter of the macro ``taxonomy``."""

    name: str
    default: float
    meaning: str
    """The condition that it decides, after the kind of heads that the condition belongs to."""

    def __str__(self) -> str:
        return f"{self.name} ({self.meaning})"


THRESHOLDS = (
    Threshold(
        "last_leads",
        1.0,
        "Retriever: the last token contributes at least so many times the larger of what the sink and the rest "
        "contribute",
    ),
    Threshold(
        "last_high",
        0.5,
        "Retriever: the cosine of the output with the last token's value state is at least so high from the first N to "
        "the last",
    ),
    Threshold(
        "sink_falls",
        0.1,
        "Mixer: the cosine of the output with the sink's value state falls by at least so much from the first N to the "
        "last",
    ),
    Threshold("last_rises", 0.1, "Mixer: the cosine with the last token's value state rises by at least so much"),
    Threshold(
        "sink_comparable",
        0.8,
        "Reset: the sink contributes at least so many times the larger of what the last token and the rest contribute, "
        "or else spread_broad holds",
    ),
    Threshold(
        "spread_broad",
        0.8,
        "Reset: the rest makes up at least this share of all lengths that are added, or else sink_comparable holds",
    ),
    Threshold(
        "last_weak",
        0.3,
        "Reset: the cosine of the output with the last token's value state is at most so high on average over ln N",
    ),
)
