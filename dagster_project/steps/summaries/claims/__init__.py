"""The step of the claims: estimates with intervals of what the paper claims, which hold together.

A claim is a row of the SQL view ``paper_claims``; its estimate comes from the module of its subject. Modules: ``parts``
(what they share), ``reading`` (the stores), ``norms``, ``fits``, ``bounds``, ``separation``, ``sink``, ``kinds``,
``regimes``, ``chance``, ``effects``, and ``estimating``, which puts them together.
"""

from dagster_project.steps.sources import Rows, Sources


def claim_estimates(sources: Sources) -> Rows:
    """What the study shows of each claim of the paper, with intervals over sequences and KV groups that hold together.

    At the last query, layer by layer; in memory are one layer of all sequences on a grid of N and its resampled means,
    and sums over heads (``estimating.estimates_bytes``).
    """
    from dagster_project.steps.summaries.claims.estimating import rows_of_claims

    yield "claim_estimates", rows_of_claims(sources)
