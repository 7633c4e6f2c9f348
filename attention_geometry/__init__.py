"""The public API in one place: what every head of a model does with a text, and the tables of studies.

``analyze`` measures a model that transformers has loaded on one text, without a study and without a file; ``connect``
opens the tables of studies that have been run; ``selection_profile`` measures arrays. Each name is loaded when it is
first used; that the packages are our own is checked at once.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attention_geometry.packages import NAME, check_packages

check_packages()

if TYPE_CHECKING:
    from attention_geometry.analysis import Analysis as Analysis
    from attention_geometry.analysis import analyze as analyze
    from geometry import selection_profile as selection_profile
    from reports.rendering import TextPage as TextPage
    from storage import connect as connect
    from storage.errors import UserError as UserError

_MODULE_OF = {
    "Analysis": "attention_geometry.analysis",
    "TextPage": "reports.rendering",
    "UserError": "storage.errors",
    "analyze": "attention_geometry.analysis",
    "connect": "storage",
    "selection_profile": "geometry",
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used; the version is that of the installed distribution."""
    if name == "__version__":
        return version(NAME)
    if name not in _MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All names, loaded or not."""
    return sorted({*globals(), *__all__, "__version__"})
