"""Fits of one quantity against another on logarithmic axes, as columns of tables.

Holds what the steps of distances and of convergence share: the rows of fits of heads and of models.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geometry.arrays import F64
from geometry.statistics.power_law import fit_log_log
from storage.zarr.sequences import SequenceStore

LEVEL = 0.95
"""Confidence level of the intervals of slopes."""

Row = dict[str, Any]

FIT = {
    "status": pa.string(),
    **dict.fromkeys(("slope", "slope_se", "slope_low", "slope_high", "intercept", "intercept_se", "r2"), pa.float64()),
    **dict.fromkeys(("points", "left_out", "clusters"), pa.int32()),
}
"""Columns of a fit and their types."""


def fit_row(x: F64, y: F64, cluster: NDArray[np.integer]) -> Row:
    """The columns of ``FIT``: ln y against ln x, with the jackknife over clusters; NaN as None.

    The arguments are as for ``geometry.statistics.power_law.fit_log_log``.
    """
    from scipy.special import stdtrit

    fit = fit_log_log(x, y, cluster)
    freedom = fit.degrees_of_freedom
    reach = fit.slope_se * stdtrit(freedom, (1 + LEVEL) / 2) if freedom > 0 else np.nan
    row = asdict(fit) | {"slope_low": fit.slope - reach, "slope_high": fit.slope + reach}
    return {name: None if isinstance(row[name], float) and np.isnan(row[name]) else row[name] for name in FIT}


def build_fit_batch(rows: Sequence[Row], **places: pa.DataType) -> pa.RecordBatch:
    """Rows of ``fit_row`` that also have the columns ``places``, such as a layer and a head, of these types."""
    return pa.RecordBatch.from_pylist(list(rows), pa.schema((places | FIT).items()))


def find_head_groups(store: SequenceStore) -> list[NDArray[np.int64]]:
    """The number of each head's KV group among those of the model, (head,), for every layer."""
    first = np.cumsum([0, *(size.kv_heads for size in store.layers)])
    return [
        start + np.arange(size.heads, dtype=np.int64) // max(1, size.heads // max(1, size.kv_heads))
        for start, size in zip(first, store.layers, strict=False)
    ]
