"""Tells that kernels are compiled, before the first is: the first run of an installation does so, for minutes."""

import logging
from functools import cache

from numba.core import event

logger = logging.getLogger(__name__)

COMPILING = "numba:compile"
"""The event that numba announces for a kernel that it compiles, and not for one that it loads from its cache."""


class _Teller(event.Listener):
    """Tells it at the first kernel that is compiled, and then listens no more."""

    def on_start(self, event_of_kernel: event.Event) -> None:  # noqa: ARG002 (numba's signature)
        """Tell it."""
        event.unregister(COMPILING, self)
        logger.info("compiling kernels, for minutes on few cores: only the first run of an installation does")

    def on_end(self, event_of_kernel: event.Event) -> None:
        """Nothing is told of the end."""


@cache
def tell_of_compilation() -> None:
    """Tell once, as a message of this module's logger, that kernels are compiled, before the first is."""
    event.register(COMPILING, _Teller())
