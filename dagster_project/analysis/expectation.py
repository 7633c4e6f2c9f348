"""The step of the bounds in expectation: heads drawn from the assumptions as fitted to the study.

Holds which heads are drawn: the study's grid, and those of Table 1.
"""

import logging
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import mode
from typing import Any

import numpy as np

from dagster_project.analysis.cluster import run_in_parallel
from dagster_project.analysis.sources import Rows, Sources
from storage.warehouse.rows import build_listed

logger = logging.getLogger(__name__)

EFFECT_DRAWS = 16  # Heads drawn for every value of a parameter of Table 1


def compute_bounds_in_expectation(sources: Sources) -> Rows:
    """The bounds compared with means over heads drawn from the assumptions as fitted to the study, over its grid.

    One batch per grid point; points are drawn through Dask.
    """
    from geometry.assumptions.assumed import stretch_phases
    from geometry.bounds.monte_carlo import compare_bounds

    analysis, typical = sources.study.analysis, _find_typical_head(sources)
    if (grid := analysis.monte_carlo) is None or typical is None:
        return
    axes = (grid.head_dim, grid.n_keys, grid.beta, grid.lambda_sink, grid.rho_0)
    tasks = [
        partial(
            compare_bounds,
            replace(
                stretch_phases(typical, sources.query + 1, n_keys), beta=beta, lambda_sink=lambda_sink, rho_0=rho_0
            ),
            n_keys,
            head_dim,
            draws=grid.draws,
            seed=sources.study.seed,
            sizes=[n for n in grid.n if n < n_keys],
            kappas=analysis.kappas,
        )
        for head_dim, n_keys, beta, lambda_sink, rho_0 in product(*axes)
    ]
    yield from (("monte_carlo", build_listed("monte_carlo", rows)) for rows in run_in_parallel(tasks))


def compute_parameter_effects(sources: Sources) -> Rows:
    """Table 1: effects of the parameters on the printed lower bounds of heads drawn from the assumptions as fitted.

    At the middle one of the study's κ.
    """
    from geometry.bounds.monte_carlo import find_premise_point, measure_parameter_effects

    if (typical := _find_typical_head(sources)) is None:
        return
    analysis, seed, n_keys = sources.study.analysis, sources.study.seed, sources.query + 1
    commonest = mode(size.head_dim for size in sources.tensors.layers if size.heads)
    base, head_dim, size = find_premise_point(typical, n_keys, commonest, seed=seed)
    kappa = analysis.kappas[len(analysis.kappas) // 2]
    rows = measure_parameter_effects(
        base, n_keys, head_dim, size, kappa=kappa, scale=analysis.scale, draws=EFFECT_DRAWS, seed=seed
    )
    yield "parameter_effects", build_listed("parameter_effects", rows)


def _find_typical_head(sources: Sources) -> Any:
    """The parameters of a head typical of the study, from the fits; None, with a log line, if a fit is missing.

    Those of the weights are fitted to the last query.
    """
    from geometry.assumptions.assumed import AssumedHead

    heads = [row for row in sources.read_rows("assumption_norms") if row["lambda_sink"] is not None]
    (similar,) = sources.read_rows("assumption_similarity_model")
    (weight,) = (row for row in sources.read_rows("assumption_weights_model") if row["query"] == sources.query)
    beta = np.inf if similar["status"] == "unbounded" else similar["beta"]
    if not heads or beta is None or weight["status"] != "ok" or (weight["p_sink"] or 0) >= 1:
        logger.info("%s: norms, similarity or weights have no fit, so no heads can be drawn like them", sources.name)
        return None
    oscillates = weight["omega"] is not None
    return AssumedHead(
        value_scale=float(np.median([row["c"] for row in heads])),
        lambda_sink=float(np.median([row["lambda_sink"] for row in heads])),
        beta=beta,
        rho_0=similar["rho_0"] or 0.0,
        p_sink=weight["p_sink"] or 0.0,
        eta=weight["eta"] if oscillates else 0.0,
        eta_growth=weight["eta_growth"] or 0.0,
        omega=weight["omega"] if oscillates else np.pi,
        t_1=int(weight["t_1"]),
        t_2=int(weight["t_2"]),
    )
