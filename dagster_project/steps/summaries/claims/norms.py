"""Claims about the norms of value states (Assumption 1, Figure 2)."""

import numpy as np

from dagster_project.steps.summaries.claims.parts import SINK_TIMES, Estimated, Resampled, Statistics, count_groups
from geometry.arrays import F64, I64, Bool
from geometry.statistics.resampling import NOTHING, Resampling, median_over_heads
from geometry.statistics.running import variation

CLAIMS = ("norms_stable", "norms_stable_within_sequence", "sink_compressed")


class Norms:
    """How much norms vary over positions, and how small the sink's norm is, KV head by KV head.

    Memory: 24 · (R + 1) bytes per KV head.
    """

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._of_heads: dict[str, list[F64]] = {name: [] for name in ("between", "within", "sink")}
        self._groups: list[I64] = []
        self._has_sink: list[Bool] = []

    def add(self, resampled: Resampled) -> None:
        """Add the KV heads of a layer."""
        layer, resampling = resampled.layer, self._statistics.resampling
        first, others = layer.value_norms[..., 0], layer.value_norms[..., 1:]
        middle = np.median(others, axis=-1)
        within = variation(others)
        ratio = np.divide(first, middle, out=np.full_like(first, np.nan), where=middle > 0)
        self._of_heads["between"].append(
            np.stack([estimate_variation(others[:, head], resampling) for head in range(others.shape[1])])
        )
        self._of_heads["within"].append(resampled.compute_means(within))
        self._of_heads["sink"].append(resampled.compute_means(ratio))
        self._groups.append(layer.kv_groups)
        times = np.nan_to_num(resampled.compute_means(layer.sink_times)[:, 0])
        self._has_sink.append(times.reshape(layer.kv_groups.size, -1).max(axis=1) >= SINK_TIMES)

    def estimate_claims(self) -> dict[str, Estimated]:
        """The claims by name."""
        if not self._groups:
            return dict.fromkeys(CLAIMS, Estimated(NOTHING, reason="no layer has attention"))
        groups, found = np.concatenate(self._groups), {name: np.concatenate(of) for name, of in self._of_heads.items()}
        has_sink = np.concatenate(self._has_sink)
        everywhere = np.ones(groups.size, np.bool_)
        lacking = (
            f"position 0 gets {SINK_TIMES:g} times the uniform share in a head of {int(has_sink.sum())} of "
            f"{groups.size} KV heads"
        )
        return {
            "norms_stable": self._estimate_median(found["between"], groups, everywhere),
            "norms_stable_within_sequence": self._estimate_median(found["within"], groups, everywhere),
            "sink_compressed": self._estimate_median(
                found["sink"], groups, has_sink, premise=float(has_sink.mean()), lacking=lacking
            ),
        }

    def _estimate_median(
        self, values: F64, groups: I64, chosen: Bool, *, premise: float | None = None, lacking: str | None = None
    ) -> Estimated:
        """The median over some KV heads; ``lacking`` says why there are none."""
        weights = self._statistics.resampling.count_head_draws(groups)[chosen]
        replicates = median_over_heads(values[chosen], weights) if chosen.any() else np.full(values.shape[1], np.nan)
        clusters = count_groups(groups[chosen])
        return Estimated(
            self._statistics.compute_interval(replicates, clusters, (0, np.inf)),
            rows=int(chosen.sum()),
            clusters=clusters,
            premise=premise,
            reason=None if chosen.any() else lacking,
        )


def estimate_variation(norms: F64, resampling: Resampling) -> F64:
    """Coefficient of variation over positions of the expected norm: its limit for many sequences.

    The variance of a mean over S sequences also includes a part 1/S of that within a sequence. This part is excluded by
    averaging only products of two different sequences, which is unbiased in every replicate.

    Parameters
    ----------
    norms
        Of one KV head, (S, position).
    resampling
        The draws.

    Returns
    -------
    ndarray
        (R + 1,); 0 where the variance comes out below 0, NaN where a single sequence is drawn or there is one position.
    """
    if norms.shape[1] < 2:
        return np.full(resampling.sequences.shape[1], np.nan)
    drawn, mean = resampling.sequences, norms.mean(axis=1)
    apart = norms - mean[:, None]
    products = apart @ apart.T / norms.shape[1]
    np.fill_diagonal(products, 0)
    pairs = drawn.sum(axis=0) ** 2 - (drawn**2).sum(axis=0)
    level = resampling.means(mean)
    with np.errstate(invalid="ignore", divide="ignore"):  # 0/0 for one sequence, or norms of 0
        variance = ((products @ drawn) * drawn).sum(axis=0) / pairs
        found: F64 = np.sqrt(np.maximum(variance, 0)) / level
    return found
