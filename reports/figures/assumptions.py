"""The paper's three assumptions, one tab each."""

from reports.figures import attention, values
from reports.figures.parts import Section, Source


def build_section(source: Source) -> Section:
    """Assumptions 1 to 3."""
    return Section(
        "assumptions",
        "Do the assumptions hold?",
        "1: the value states of a head have norm C, the sink’s λC. 2: the cosine of two value states decays with their "
        "distance k as exp(−β k); that of the sink’s with any other is ρ_0. 3: the weights over positions have four "
        "phases: the sink, a plateau up to T₁, an oscillation up to T₂, and growth towards the query.",
        (*values.build_norms(source), *values.build_similarity(source), *attention.build_weights(source)),
    )
