"""The paper's three assumptions, one tab each."""

from reports.figures import attention, values
from reports.figures.parts import Section, Source


def build_section(source: Source) -> Section:
    """Assumptions 1 to 3."""
    return Section(
        "assumptions",
        "Do the assumptions hold?",
        "The bounds rest on three assumptions. Norms: all value states of a head have norm C, except the sink’s, which "
        "has norm λC. Similarity: the cosine of two value states decays as exp(−β k) with their distance k; the cosine "
        "of the sink’s value state with any other is ρ_0. Weights: over positions, the attention of the last token has "
        "four phases: the sink, a plateau up to T₁, an oscillation up to T₂, and growth towards the query itself.",
        (*values.build_norms(source), *values.build_similarity(source), *attention.build_weights(source)),
    )
