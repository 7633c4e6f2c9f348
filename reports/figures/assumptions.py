"""The paper's three assumptions, a tab each."""

from reports.figures import attention, values
from reports.figures.parts import Section, Source


def section(source: Source) -> Section:
    """Assumptions 1 to 3."""
    return Section(
        "assumptions",
        "Do the assumptions hold?",
        "The bounds rest on three. Norms: all value states of a head but the sink’s have the length C, the sink’s λC. "
        "Similarity: the cosine of two value states falls as exp(−β k) with their distance k, and the sink’s with any "
        "other is ρ_0. Weights: what the last token gives runs in four phases, a sink, a plateau up to T₁, an "
        "oscillation up to T₂, and growth towards the query itself.",
        (*values.norms(source), *values.similarity(source), *attention.weights(source)),
    )
