"""Colours and marks of the theme stay apart, also for readers who see fewer of them."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from reports import theme
from reports.kinds import labels as kind_labels


def linear(colour: str) -> NDArray[np.float64]:
    """Red, green and blue in proportion to light (sRGB)."""
    channels = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Ratio of contrast after WCAG 2."""
    low, high = sorted(float(linear(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is left of light without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)."""


def lab(colour: str, kind: str) -> NDArray[np.float64]:
    """Colour as it is seen, in CIELAB, where equal distances look about equally different."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(np.array(BLINDNESS[kind]) @ linear(colour), 1e-4, 1) / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: tuple[str, ...], kind: str) -> float:
    return min(float(np.linalg.norm(lab(one, kind) - lab(other, kind))) for one, other in combinations(colours, 2))


@pytest.mark.parametrize("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_colours_stay_apart_for_every_eye_and_stand_out(palette: theme.Palette) -> None:
    """Those of either sign run from a middle to two ends."""
    for kind in BLINDNESS:
        assert nearest(palette.series, kind) > 20
        assert nearest((palette.diverging[0], palette.diverging[-1]), kind) > 20
    assert nearest(("#c2560c", "#3d7a34"), "protan") < 20  # orange and green, which do not

    def stand_out(colours: Iterable[str]) -> float:
        return min(contrast(colour, palette.surface) for colour in colours)

    assert stand_out(palette.series[: len(kind_labels.LABELS)]) >= 4.5  # letters on segments and cells
    assert stand_out((*palette.series, *palette.ramp[theme.FIRST_SEEN :])) >= 3
    assert stand_out(palette.diverging) >= 2
    outwards = [contrast(colour, palette.surface) for colour in palette.diverging]
    middle = len(outwards) // 2
    for side in (outwards[middle::-1], outwards[middle:]):
        assert side == sorted(side)


def test_kinds_are_told_apart_without_colour() -> None:
    for marks in (kind_labels.DASHES, kind_labels.SHAPES, kind_labels.WRITTEN):
        assert list(marks) == list(kind_labels.LABELS)
        assert len({str(mark) for mark in marks.values()}) == 4
