"""The geometry of token selection in attention heads: mathematics only, free of files and of any framework's I/O."""

from geometry.profile import (
    PROFILE,
    SCALES,
    Scale,
    SelectionCounts,
    SelectionProfile,
    selection_counts,
    selection_profile,
)

__all__ = [
    "PROFILE",
    "SCALES",
    "Scale",
    "SelectionCounts",
    "SelectionProfile",
    "selection_counts",
    "selection_profile",
]
