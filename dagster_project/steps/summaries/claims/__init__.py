"""The step of the claims: estimates of what the paper claims, with simultaneous intervals.

A claim is a row of the SQL view ``paper_claims``; its estimate comes from the module of its subject. Modules: ``parts``
(what they share), ``reading`` (the stores), ``norms``, ``fits``, ``bounds``, ``separation``, ``sink``, ``kinds``,
``regimes``, ``chance``, ``effects``, and ``estimating``, which combines them.
"""

from dagster_project.steps.sources import Rows, Sources


def compute_claim_estimates(sources: Sources) -> Rows:
    """Estimates for all claims of the paper, with simultaneous intervals over sequences and KV groups.

    At the last query, layer by layer; one layer of all sequences on a grid of N, its resampled means, and sums over
    heads are in memory.
    """
    from dagster_project.steps.summaries.claims.estimating import compute_claim_rows

    yield "claim_estimates", compute_claim_rows(sources)
