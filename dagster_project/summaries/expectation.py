"""The step of the bounds in expectation: heads drawn from the assumptions as fitted to the study.

Holds which heads are drawn: the study's grid, and those of Table 1. What does not belong here: drawing them and holding
the bounds against them (``geometry.assumed``, ``geometry.monte_carlo``).
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, product, repeat, takewhile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagster_project.summaries.sources import Sources, Tables

logger = logging.getLogger(__name__)

KINDS: dict[str, pa.DataType] = {
    **dict.fromkeys(("family", "scale", "parameter"), pa.string()),
    **dict.fromkeys(("head_dim", "n_keys", "n", "draws"), pa.int32()),
    **dict.fromkeys(("effect", "paper_effect"), pa.int8()),
    **dict.fromkeys(("meets_assumptions", "agrees"), pa.bool_()),
    **{f"{metric}_{side}holds": pa.bool_() for metric in ("precision", "recall") for side in ("", "upper_")},
}
"""Types of the columns of drawn heads that are no float64."""

RATES = tuple(2.0 ** (step / 2) for step in range(-4, 7))
"""β tried for Table 1, from 1/4 to 8, where no N has Δ > 0 at the β of the study: there few parameters matter."""

MOST_DIM = 1024
"""Largest d tried for Table 1: in few dimensions some of many directions always lie close to each other."""

SEARCH_DRAWS = 4
"""Heads drawn for every β and d that is tried."""

EFFECT_DRAWS = 16
"""Heads drawn for every value of a parameter of Table 1."""


def expectation(sources: Sources) -> Tables:
    """The bounds held against means over heads drawn from the assumptions as fitted to the study, over its grid."""
    typical = _typical(sources)
    return {"monte_carlo": iter(()) if typical is None else _grid(sources, typical)}


def effects(sources: Sources) -> Tables:
    """Table 1: what each parameter does to the printed lower bounds of heads drawn from the assumptions as fitted."""
    typical = _typical(sources)
    return {"parameter_effects": iter(()) if typical is None else _effects(sources, typical)}


def _typical(sources: Sources) -> Any:
    """The parameters of a head typical of the study, from the fits; None, and a line, if one of them is missing."""
    from geometry.assumed import Assumed

    heads = [row for row in sources.rows("assumption_norms") if row["lambda_sink"] is not None]
    (similar,), (weight,) = sources.rows("assumption_similarity_model"), sources.rows("assumption_weights_model")
    beta = np.inf if similar["status"] == "unbounded" else similar["beta"]
    if not heads or beta is None or weight["status"] != "ok" or (weight["p_sink"] or 0) >= 1:
        logger.info("%s: norms, similarity or weights have no fit, so no heads can be drawn like them", sources.name)
        return None
    oscillates = weight["omega"] is not None
    return Assumed(
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


def _grid(sources: Sources, typical: Any) -> Iterator[pa.RecordBatch]:
    """The rows of ``monte_carlo``, one batch per grid point; points are drawn on all cores through Dask."""
    from dask.base import compute
    from dask.delayed import delayed
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm
    from tqdm.dask import TqdmCallback

    from geometry.monte_carlo import monte_carlo

    analysis = sources.study.analysis
    if (grid := analysis.monte_carlo) is None:
        return
    axes = (grid.head_dim, grid.n_keys, grid.beta, grid.lambda_sink, grid.rho_0)
    tasks = [
        delayed(monte_carlo, pure=False)(
            replace(stretched(typical, sources.query + 1, n_keys), beta=beta, lambda_sink=lambda_sink, rho_0=rho_0),
            n_keys,
            head_dim,
            draws=grid.draws,
            seed=sources.study.seed,
            sizes=[n for n in grid.n if n < n_keys],
            kappas=analysis.kappas,
        )
        for head_dim, n_keys, beta, lambda_sink, rho_0 in product(*axes)
    ]
    progress = TqdmCallback(tqdm_class=tqdm, desc="Monte Carlo", unit="point", disable=None)
    with threadpool_limits(limits=1, user_api="blas"), progress:
        found = compute(*tasks, scheduler="threads")
    yield from map(_drawn, found)


def stretched(assumed: Any, n: int, n_keys: int) -> Any:
    """Parameters of weights over n keys for ``n_keys``: the phases keep their shares, the same periods and growth."""
    share = n_keys / n
    t_1 = round(assumed.t_1 * share)
    return replace(
        assumed,
        omega=min(assumed.omega / share, np.pi),
        eta_growth=assumed.eta_growth / share,
        t_1=t_1,
        t_2=max(t_1, round(assumed.t_2 * share)),
    )


def _effects(sources: Sources, typical: Any) -> Iterator[pa.RecordBatch]:
    """The rows of ``parameter_effects``."""
    from geometry.monte_carlo import parameter_effects

    analysis = sources.study.analysis
    n_keys, head_dim = sources.query + 1, sources.tensors.sizes["head_dim"]
    base, head_dim, size = within_premise(typical, n_keys, head_dim, seed=sources.study.seed)
    kappa = analysis.kappas[len(analysis.kappas) // 2]
    rows = parameter_effects(
        base,
        n_keys,
        head_dim,
        size,
        kappa=kappa,
        scale=analysis.scale,
        draws=EFFECT_DRAWS,
        seed=sources.study.seed,
    )
    held = {
        "d": head_dim,
        "L": n_keys - 1,
        "N": size,
        "beta": base.beta,
        "eta": base.eta or base.eta_growth,
        "omega": base.omega,
    }
    held |= {"T_1": base.t_1, "T_2": base.t_2}
    yield _drawn([{"base": held.get(row["parameter"], 1)} | row for row in rows])


def within_premise(typical: Any, n_keys: int, head_dim: int, *, seed: int) -> tuple[Any, int, int]:
    """Parameters, d and N at which drawn heads have Δ > 0, as near to the study's as may be.

    First β is raised along ``RATES``, then d doubled up to ``MOST_DIM``, until some N above 1 has Δ > 0 in every draw;
    of these N that of the largest mean Δ/B is taken. If there is none, the study's own parameters and the least N are.
    """
    from geometry.monte_carlo import draw

    sizes = np.unique(np.geomspace(min(2, n_keys - 1), n_keys - 1, 24).astype(int))
    rates = [typical.beta, *(rate for rate in RATES if rate > typical.beta)]
    dims = takewhile(lambda dim: dim <= MOST_DIM, accumulate(repeat(2 * head_dim), lambda dim, _: 2 * dim))
    for dim, beta in [*((head_dim, rate) for rate in rates), *((dim, rates[-1]) for dim in dims)]:
        base, random = replace(typical, beta=beta), np.random.SeedSequence(seed)
        margins = _margins(draw(base, n_keys, dim, draws=SEARCH_DRAWS, random=random, sizes=sizes.tolist()))
        if (always := (margins > 0).all(axis=0)).any():
            return base, dim, int(sizes[np.argmax(np.where(always, margins.mean(axis=0), -np.inf))])
    return typical, head_dim, int(sizes[0])


def _margins(drawn: Any) -> NDArray[np.float64]:
    """Δ/B of drawn heads, (draws, N)."""
    from geometry import lower
    from geometry.monte_carlo import INGREDIENTS

    return lower.margin(**{name: drawn.ingredients[name] for name in INGREDIENTS if name != "a_0"})


def _drawn(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as a record batch, whatever of them is unknown."""
    schema = pa.schema([(name, KINDS.get(name, pa.float64())) for name in rows[0]])
    return pa.RecordBatch.from_pylist(rows, schema)
