"""Counts in plain arithmetic by loops that are written out, without any code of the product."""

import numpy as np
import torch


def by_loop(weights: np.ndarray, values: np.ndarray, name: str) -> np.ndarray:
    """K_in and K_out of every N, one after the other, (2, n − 1)."""
    dtype = np.float64 if name == "float64_literal" else np.float32
    order, found = np.argsort(-weights, kind="stable"), []
    y = (weights.astype(dtype)[:, None] * values.astype(dtype))[order]
    s = np.zeros(y.shape[1], dtype)
    for size in range(1, len(y)):
        s = s + y[size - 1]
        if name == "float32_cdist":
            far = torch.cdist(torch.tensor(s)[None], torch.tensor(y), compute_mode="use_mm_for_euclid_dist")[0].numpy()
        else:
            far = np.array([np.einsum("d,d->", s - key, s - key) for key in y])
        assert far.dtype == dtype
        found.append(((far[:size] <= far[size:].min()).sum(), (far[size:] <= far[:size].max()).sum()))
    return np.array(found).T
