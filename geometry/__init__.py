"""The geometry of token selection in attention heads: mathematics only, without files or any framework's I/O.

The public names are imported from here. Each is loaded when it is first used, so that the declarations of
``geometry.quantities`` are available without loading the numerical libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geometry.arithmetic import PlainArithmetic as PlainArithmetic
    from geometry.arithmetic import plain_arithmetic as plain_arithmetic
    from geometry.chance import MEASURES as MEASURES
    from geometry.chance import NULLS as NULLS
    from geometry.chance import Separability as Separability
    from geometry.chance import separability as separability
    from geometry.chance import separation as separation
    from geometry.curves import SeparationCurve as SeparationCurve
    from geometry.curves import separation_curve as separation_curve
    from geometry.decay import fit_decay as fit_decay
    from geometry.distances import critical_n as critical_n
    from geometry.distances import random_subset_distance as random_subset_distance
    from geometry.distances import rest_distance as rest_distance
    from geometry.effective_keys import concentration as concentration
    from geometry.grids import log_grid as log_grid
    from geometry.jacobian import bounds_held as bounds_held
    from geometry.jacobian import jacobian_norm as jacobian_norm
    from geometry.jacobian import sensitivity as sensitivity
    from geometry.lower import Ingredients as Ingredients
    from geometry.lower import lower_bounds as lower_bounds
    from geometry.parts import output_parts as output_parts
    from geometry.phases import fit_phases as fit_phases
    from geometry.power_law import PowerLaw as PowerLaw
    from geometry.power_law import fit_log_log as fit_log_log
    from geometry.profile import SCALES as SCALES
    from geometry.profile import Scale as Scale
    from geometry.profile import selection_counts as selection_counts
    from geometry.profile import selection_profile as selection_profile
    from geometry.quantities import SELECTION as SELECTION
    from geometry.quantities import Concentration as Concentration
    from geometry.quantities import OutputParts as OutputParts
    from geometry.quantities import Quantity as Quantity
    from geometry.quantities import ScaleFreeBounds as ScaleFreeBounds
    from geometry.quantities import SelectionCounts as SelectionCounts
    from geometry.quantities import SelectionProfile as SelectionProfile
    from geometry.quantities import list_declared as list_declared
    from geometry.quantities import list_derived as list_derived
    from geometry.scale_free import scale_free_lower_bounds as scale_free_lower_bounds
    from geometry.similarity import cosine_by_distance as cosine_by_distance
    from geometry.similarity import sink_cosines as sink_cosines
    from geometry.temperature import TEMPERATURES as TEMPERATURES
    from geometry.temperature import counts_by_temperature as counts_by_temperature
    from geometry.temperature import temper as temper
    from geometry.tempered import SelectionByTemperature as SelectionByTemperature
    from geometry.tempered import selection_by_temperature as selection_by_temperature

_MODULES = {
    "arithmetic": ("PlainArithmetic", "plain_arithmetic"),
    "chance": ("MEASURES", "NULLS", "Separability", "separability", "separation"),
    "curves": ("SeparationCurve", "separation_curve"),
    "grids": ("log_grid",),
    "decay": ("fit_decay",),
    "distances": ("critical_n", "random_subset_distance", "rest_distance"),
    "effective_keys": ("concentration",),
    "lower": ("Ingredients", "lower_bounds"),
    "parts": ("output_parts",),
    "phases": ("fit_phases",),
    "profile": ("SCALES", "Scale", "selection_counts", "selection_profile"),
    "quantities": (
        "SELECTION",
        "Concentration",
        "OutputParts",
        "Quantity",
        "ScaleFreeBounds",
        "SelectionCounts",
        "SelectionProfile",
        "list_declared",
        "list_derived",
    ),
    "scale_free": ("scale_free_lower_bounds",),
    "power_law": ("PowerLaw", "fit_log_log"),
    "jacobian": ("bounds_held", "jacobian_norm", "sensitivity"),
    "temperature": ("TEMPERATURES", "counts_by_temperature", "temper"),
    "tempered": ("SelectionByTemperature", "selection_by_temperature"),
    "similarity": ("cosine_by_distance", "sink_cosines"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _MODULE_OF:
        msg = f"module '{__name__}' has no attribute '{name}'"
        raise AttributeError(msg)
    found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All names, loaded or not."""
    return sorted({*globals(), *__all__})
