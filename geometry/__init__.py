"""The geometry of token selection in attention heads: mathematics only, without files or any framework's I/O.

The public names are imported from here. Each is loaded when it is first used, so that the declarations of
``geometry.quantities`` are available without loading the numerical libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geometry.assumptions.decay import fit_decay as fit_decay
    from geometry.assumptions.phases import fit_phases as fit_phases
    from geometry.bounds.lower import Ingredients as Ingredients
    from geometry.bounds.lower import lower_bounds as lower_bounds
    from geometry.bounds.scale_free import scale_free_lower_bounds as scale_free_lower_bounds
    from geometry.grids import log_grid as log_grid
    from geometry.limits import TEMPERATURES as TEMPERATURES
    from geometry.limits import Exponent as Exponent
    from geometry.limits import SelectionByTemperature as SelectionByTemperature
    from geometry.limits import fit_exponents as fit_exponents
    from geometry.limits import jacobian_norm as jacobian_norm
    from geometry.limits import random_subset_distance as random_subset_distance
    from geometry.limits import selection_by_temperature as selection_by_temperature
    from geometry.limits import sensitivity as sensitivity
    from geometry.limits import temper as temper
    from geometry.quantities import SELECTION as SELECTION
    from geometry.quantities import Concentration as Concentration
    from geometry.quantities import OutputParts as OutputParts
    from geometry.quantities import Quantity as Quantity
    from geometry.quantities import ScaleFreeBounds as ScaleFreeBounds
    from geometry.quantities import SelectionCounts as SelectionCounts
    from geometry.quantities import SelectionErrors as SelectionErrors
    from geometry.quantities import SelectionProfile as SelectionProfile
    from geometry.quantities import list_declared as list_declared
    from geometry.quantities import list_derived as list_derived
    from geometry.selection.concentration import concentration as concentration
    from geometry.selection.outputs import output_parts as output_parts
    from geometry.selection.outputs import selection_errors as selection_errors
    from geometry.selection.profile import SCALES as SCALES
    from geometry.selection.profile import Scale as Scale
    from geometry.selection.profile import selection_counts as selection_counts
    from geometry.selection.profile import selection_profile as selection_profile
    from geometry.selection.top_keys import TopKeys as TopKeys
    from geometry.selection.top_keys import top_keys as top_keys
    from geometry.separation.chance import MEASURES as MEASURES
    from geometry.separation.chance import NULLS as NULLS
    from geometry.separation.chance import Separability as Separability
    from geometry.separation.chance import SeparationCurve as SeparationCurve
    from geometry.separation.chance import separability as separability
    from geometry.separation.chance import separation as separation
    from geometry.separation.chance import separation_curve as separation_curve

_MODULES = {
    "assumptions.decay": "fit_decay",
    "assumptions.phases": "fit_phases",
    "bounds.lower": "Ingredients lower_bounds",
    "bounds.scale_free": "scale_free_lower_bounds",
    "grids": "log_grid",
    "limits": "TEMPERATURES Exponent SelectionByTemperature fit_exponents jacobian_norm "
    "random_subset_distance selection_by_temperature sensitivity temper",
    "quantities": "SELECTION Concentration OutputParts Quantity ScaleFreeBounds SelectionCounts "
    "SelectionErrors SelectionProfile list_declared list_derived",
    "selection.concentration": "concentration",
    "selection.outputs": "output_parts selection_errors",
    "selection.profile": "SCALES Scale selection_counts selection_profile",
    "selection.top_keys": "TopKeys top_keys",
    "separation.chance": "MEASURES NULLS Separability SeparationCurve separability separation separation_curve",
}
"""The public names by their modules."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All names, loaded or not."""
    return sorted({*globals(), *__all__})
