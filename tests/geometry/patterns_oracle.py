"""The definitions of what heads look at, row by row, as ``geometry.patterns`` must give them."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from geometry.quantities import LOCAL_KEYS, PATTERNS


def measure_by_row(
    weights: Sequence[Sequence[float]], tokens: Sequence[int], sees_sink: Sequence[bool]
) -> dict[str, float]:
    """The patterns of one head, from its matrix of weights and its tokens; NaN where no row has one."""
    rows: dict[str, list[float]] = {name: [] for name in PATTERNS}
    for q in range(1, len(tokens)):
        row = [float(weight) for weight in weights[q]]
        copies = [j for j in range(q) if tokens[j] == tokens[q]]
        rows["self"].append(row[q])
        rows["previous"].append(row[q - 1])
        rows["local"].append(math.fsum(row[max(0, q - LOCAL_KEYS + 1) : q + 1]))
        rows["entropy"].append(-math.fsum(w * math.log(w) for w in row if w > 0) / math.log(q + 1))
        if copies:
            rows["duplicate"].append(math.fsum(row[j] for j in copies))
            rows["induction"].append(math.fsum(row[j + 1] for j in copies))
        if sees_sink[q]:
            rows["sink"].append(row[0])
            rows["sink_matched" if copies else "sink_unmatched"].append(row[0])
    return {name: math.fsum(of) / len(of) if of else math.nan for name, of in rows.items()}


def measure_all(weights: Tensor, tokens: Tensor, sees_sink: Sequence[bool] | None = None) -> np.ndarray:
    """The definition for every head of matrices (B, H, K, K), (B, H, P); ``sees_sink``: by query, all if not given."""
    sees_sink = sees_sink or [True] * weights.shape[-1]
    texts = [(heads, text.tolist()) for heads, text in zip(weights, tokens, strict=True)]
    return np.array(
        [[list(measure_by_row(head.tolist(), text, sees_sink).values()) for head in heads] for heads, text in texts]
    )
