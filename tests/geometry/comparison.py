"""A profile beside the definitions: where it departs from them.

What does not belong here: the definitions themselves (``tests.geometry.oracle``).
"""

from collections.abc import Callable, Sequence

import numpy as np

from geometry import SelectionProfile
from geometry.assumptions.values import cosines_with_one, mean_cosines, unit_vectors
from geometry.quantities import MODEL_UNITS, list_declared
from tests.geometry import oracle

COUNTS = ("k_in", "k_out")
COSINES = ("cos_sink", "cos_last")
LENGTHS = tuple(name for name, quantity in list_declared(SelectionProfile).items() if quantity.unit == MODEL_UNITS)
UPPER = oracle.PER_KAPPA

FLOAT32 = 1e-6
"""How far what is computed in float32 may be off: cosines of pairs, and the bounds as far as they do not jump."""


def departures(
    profile: SelectionProfile,
    expected: dict[str, np.ndarray],
    sizes: Sequence[int] | None = None,
    upper: float = FLOAT32,
) -> dict[str, list[int]]:
    """The N at which the arrays of one head differ by more than rounding, by name; 1 where one number is all.

    ``expected`` is ``oracle.profile`` for the same ``sizes``; upper: how far the upper bounds may be off.
    """
    wanted = np.arange(1, profile.k_in.shape[-1] + 1) if sizes is None else np.asarray(sizes)
    found = {}
    for name, right in expected.items():
        given = getattr(profile, name)
        given = given if name in oracle.PER_HEAD else given[..., wanted - 1]
        assert given.shape == right.shape, f"{name}: {given.shape} instead of {right.shape}"
        wrong = ~np.isclose(given, right, **tolerance(name, right, upper), equal_nan=True)
        if wrong.any():
            found[name] = wanted[np.flatnonzero(np.atleast_2d(wrong).any(axis=0))].tolist()
    return found


def tolerance(name: str, wanted: np.ndarray, upper: float) -> dict[str, float]:
    """Rounding that is no departure, as ``np.isclose`` takes it."""
    if name in COUNTS:
        return {"rtol": 0, "atol": 0}
    if name in LENGTHS:
        return {"rtol": 1e-6, "atol": 1e-12 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0)}
    return {"rtol": 0, "atol": 1e-9 if name in COSINES else upper if name in UPPER else FLOAT32}


def of_heads(measure: Callable[..., np.ndarray], values: np.ndarray, *given: int) -> np.ndarray:
    """What a function of unit vectors and norms finds for every head, (…, n)."""
    found = [measure(*unit_vectors(head), *given) for head in values.reshape(-1, *values.shape[-2:])]
    return np.reshape(found, values.shape[:-1])


def cosines_with(values: np.ndarray, index: int) -> np.ndarray:
    """Cosines of all value states of every head with one of them, (…, n)."""
    return of_heads(cosines_with_one, values, index)


def cosine_by_distance(values: np.ndarray) -> np.ndarray:
    """Mean cosines by distance of every head, (…, n)."""
    return of_heads(mean_cosines, values)
