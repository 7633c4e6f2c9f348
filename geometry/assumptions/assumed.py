"""Random heads that satisfy the paper's three assumptions.

Holds the parameters of the assumptions, the weights of Assumption 3, and the functions that draw value states
(Assumptions 1 and 2) and weights. ``geometry.assumptions.decay`` and ``geometry.assumptions.phases`` fit the same
parameters to data; ``geometry.bounds.monte_carlo`` and ``extract.synthetic`` use the draws.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from geometry.accelerate import compile_kernel
from geometry.arrays import F64
from geometry.threads import one_blas_thread


@dataclass(frozen=True, kw_only=True)
class AssumedHead:
    """The parameters of Assumptions 1-3, named as in the paper.

    Raises
    ------
    ValueError
        If a parameter lies outside its domain; the message names it.
    """

    value_scale: float = 1.0  # C > 0, the norm of every value state except the sink's
    lambda_sink: float  # λ ≥ 0, the norm of the sink's value state divided by C
    beta: float  # β ≥ 0 of the cosines e^(−β|i−j|); infinity: independent directions; 0: one direction
    rho_0: float
    """ρ_0, −1 to 1, the cosine of the sink's value state with every other; 0: its direction is independent as well."""
    p_sink: float  # Weight of the sink, 0 ≤ p_sink < 1
    eta: float  # η of the oscillation, −1 < η < 1
    eta_growth: float  # η of the growth, per position; the paper uses one η for oscillation and growth
    omega: float  # ω of the oscillation in radians per position, 0 < ω ≤ π
    t_1: int  # T_1 ≥ 0, the last position of the plateau
    t_2: int  # T_2 ≥ T_1, the last position of the oscillation; if T_1 = T_2 there is no oscillation

    def __post_init__(self) -> None:
        domains = {
            "value_scale": 0 < self.value_scale < math.inf,
            "lambda_sink": 0 <= self.lambda_sink < math.inf,
            "beta": self.beta >= 0,
            "rho_0": -1 <= self.rho_0 <= 1,
            "p_sink": 0 <= self.p_sink < 1,
            "eta": -1 < self.eta < 1,
            "eta_growth": math.isfinite(self.eta_growth),
            "omega": 0 < self.omega <= math.pi,
            "t_1": self.t_1 >= 0,
            "t_2": self.t_2 >= self.t_1,
        }
        for name, held in domains.items():
            if not held:
                raise ValueError(f"{name} = {getattr(self, name)} is outside its domain")

    def p_base(self, n: int) -> float:
        """Weight of a key on the plateau of a context of n keys, such that all weights sum to 1."""
        return float((1 - self.p_sink) * math.exp(-np.logaddexp.reduce(_compute_log_shape(self, n))))


def weight_profile(assumed: AssumedHead, n: int) -> F64:
    """The weights of Assumption 3 over n keys, (n,) float64, which sum to 1.

    Raises
    ------
    ValueError
        If n < 2.
    """
    if n < 2:
        raise ValueError(f"n must be at least 2, got {n}")
    shape = _compute_log_shape(assumed, n)
    others = np.exp(shape - shape.max())  # the growth of long contexts overflows float64
    return np.concatenate([[assumed.p_sink], (1 - assumed.p_sink) / others.sum() * others])


def stretch_phases(assumed: AssumedHead, n: int, n_keys: int) -> AssumedHead:
    """Rescale the weight parameters from n to ``n_keys`` keys: phases keep their shares, periods and total growth."""
    share = n_keys / n
    t_1 = round(assumed.t_1 * share)
    return replace(
        assumed,
        omega=min(assumed.omega / share, math.pi),
        eta_growth=assumed.eta_growth / share,
        t_1=t_1,
        t_2=max(t_1, round(assumed.t_2 * share)),
    )


def draw_weights(assumed: AssumedHead, n: int, rng: np.random.Generator, noise: float = 0.0) -> F64:
    """Weights of one query, (n,) float64: the profile times lognormal noise, divided by the sum.

    ``noise`` is the standard deviation of the logarithm of the factor of each weight. Raises the same errors as
    ``weight_profile``.
    """
    weights = weight_profile(assumed, n) * np.exp(noise * rng.standard_normal(n))
    noisy: F64 = weights / weights.sum()
    return noisy


@one_blas_thread
def draw_values(assumed: AssumedHead, n: int, head_dim: int, rng: np.random.Generator) -> F64:
    """Value states of one sequence, (n, head_dim) float64, position 0 the sink.

    Directions follow u_i = r u_{i−1} + √(1 − r²) z_i with r = e^{−β} and z_i independent and uniform, renormalised.
    Their cosines have the mean e^{−β|i−j|} up to O(1/d). For ρ_0 ≠ 0 these are directions u' orthogonal to that of the
    sink, e, and u = ρ_0 e + √(1 − ρ_0²) u': every cosine with the sink is ρ_0 exactly.

    Raises
    ------
    ValueError
        If n < 2 or head_dim < 2.

    Notes
    -----
    The two halves of Assumption 2 cannot both hold exactly for every ρ_0, because a Gram matrix has no negative
    eigenvalue: ρ_0² ≤ (1 + r)/((n − 1)(1 − r) + 2r) with r = e^{−β}. This construction satisfies the sink's half for
    every ρ_0, and the mean cosine of two other tokens is ρ_0² + (1 − ρ_0²) e^{−β|i−j|}, which has a floor of ρ_0².
    """
    if min(n, head_dim) < 2:
        raise ValueError(f"n and head_dim must be at least 2, got {n} and {head_dim}")
    sink = _draw_directions(1, head_dim, rng)
    others = _draw_directions(n - 1, head_dim - (assumed.rho_0 != 0), rng)
    walk(others, math.exp(-assumed.beta))
    if assumed.rho_0 != 0:
        along = np.full((n - 1, 1), assumed.rho_0)
        others = _reflect_rows(np.hstack([math.sqrt(1 - assumed.rho_0**2) * others, along]), sink[0])
    return assumed.value_scale * np.concatenate([assumed.lambda_sink * sink, others])


@compile_kernel
def walk(directions: F64, r: float) -> None:
    """Correlate independent unit vectors (n, d) in place: u_i = r u_{i−1} + √(1 − r²) z_i, renormalised."""
    step = np.sqrt(1.0 - r * r)
    for i in range(1, directions.shape[0]):
        square = 0.0
        for k in range(directions.shape[1]):
            directions[i, k] = r * directions[i - 1, k] + step * directions[i, k]
            square += directions[i, k] ** 2
        for k in range(directions.shape[1]):
            directions[i, k] /= np.sqrt(square)


def _draw_directions(vectors: int, dimension: int, rng: np.random.Generator) -> F64:
    """Draw independent uniform directions, (vectors, dimension)."""
    normal = rng.standard_normal((vectors, dimension))
    unit: F64 = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return unit


def _reflect_rows(vectors: F64, direction: F64) -> F64:
    """Reflect rows so that the last axis is mapped to ``direction``, a unit vector (Householder)."""
    mirror = direction.copy()
    mirror[-1] -= 1
    turned: F64 = vectors - np.outer(vectors @ mirror, 2 / (mirror @ mirror) * mirror)
    return turned


def _compute_log_shape(assumed: AssumedHead, n: int) -> F64:
    """Logarithm of the weights divided by p_base, at positions 1, …, n − 1."""
    position = np.arange(1, n)
    oscillating = (assumed.t_1 < position) & (position <= assumed.t_2)
    wave = np.where(oscillating, np.log1p(assumed.eta * np.cos(assumed.omega * position)), 0.0)
    shape: F64 = wave + assumed.eta_growth * np.maximum(position - assumed.t_2, 0)
    return shape
