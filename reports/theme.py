"""Theme of all charts: colours, type and sizes, for light and dark surfaces.

Holds the two palettes and the registered Altair theme. Charts name a style (``mean``, ``band``, ``accent`` ...) and
never a colour, so that a page can switch between light and dark by exchanging the configuration.

The series colours can be told apart under every kind of colour blindness: blue and orange by their hue, the third by
its lightness too, the fourth by being grey. Series also differ in dashes, shapes or letters. The ramp is monotonic in
lightness, so that it survives a grey-scale print; the diverging ramp is so from its middle to either end, and its
middle still stands out from the surface, since it also colours points.
"""

from dataclasses import dataclass
from typing import Any

import altair as alt

NAME = "attention_geometry"  # Name of the registered theme

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif'
"""Fonts of charts and page: those of the reader's system, since nothing is loaded."""


NUMBERS = {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["", ""], "percent": "\u00a0%"}
"""How d3 writes numbers on axes and in tooltips: as the sentences do."""

HEIGHT = 235  # Height of a chart's plotting area, in pixels; its width is its container's
MAP_HEIGHT = 300  # Target height of a layer × head map, in pixels; the height of a row stays within ``ROW_HEIGHTS``
PANEL_HEIGHT = 150  # Height of one of many charts that are shown side by side, in pixels
ROW_HEIGHTS = (11, 34)  # Least and greatest height of one layer on a map, in pixels

FIRST_SEEN = 4
"""Index of the first colour of the ramp in which a line is visible on the surface; ordered lines begin there."""


@dataclass(frozen=True)
class Palette:
    """Colours for one kind of surface, as CSS hexadecimal strings."""

    page: str  # Background of the page
    surface: str  # Background of charts and cards
    ink: str  # Primary text
    muted: str  # Secondary text: axes, captions, notes
    line: str  # Grid lines, rules and borders
    accent: str  # Links, and the marks of the sink
    series: tuple[str, str, str, str]  # Colours of lines and bars, in the order of their legend
    ramp: tuple[str, ...]  # Small to large values on a map; the small end is close to the surface colour
    diverging: tuple[str, ...]  # Values from −1 to 1, as cosines: orange, grey at 0, blue


LIGHT = Palette(
    page="#f7f6f2",
    surface="#ffffff",
    ink="#1d232a",
    muted="#59636e",
    line="#e3e1da",
    accent="#b3450a",
    series=("#0067a5", "#c2560c", "#5f2757", "#807467"),
    ramp=("#f3f1e7", "#d3e3d8", "#9fcbc6", "#62abb6", "#33859f", "#1c5c82", "#123763", "#0c1a3d"),
    diverging=("#7a2a05", "#b3531a", "#c98d63", "#b5b1a8", "#6c9cc0", "#2a6fa8", "#0b3a69"),
)
DARK = Palette(
    page="#0f1318",
    surface="#171c23",
    ink="#e7e9ec",
    muted="#a0aab5",
    line="#2b333d",
    accent="#f2a65a",
    series=("#5bb5ee", "#f0a04b", "#f4c6dd", "#8d8a6e"),
    ramp=("#1b2530", "#1a3b52", "#1d5a75", "#2f7f92", "#57a5a6", "#8fc7b5", "#c9e3c6", "#f6f6dc"),
    diverging=("#ffc98a", "#ea9440", "#a8713f", "#5f656d", "#43799f", "#55a9e0", "#b3e0ff"),
)


def make_config(palette: Palette) -> dict[str, Any]:
    """Vega-Lite configuration that draws every chart of this package in ``palette``."""
    return {
        "background": palette.surface,
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None, "continuousHeight": HEIGHT},
        "title": {"anchor": "start", "color": palette.ink, "fontSize": 15, "fontWeight": 600, "offset": 14},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": palette.line,
            "labelColor": palette.muted,
            "labelFontSize": 12,
            "labelPadding": 7,
            "titleColor": palette.muted,
            "titleFontSize": 12,
            "titleFontWeight": 400,
            "titlePadding": 10,
        },
        "axisXPoint": {"grid": False},
        "axisBand": {"grid": False, "ticks": False, "domain": False},
        "legend": {
            "labelColor": palette.ink,
            "labelFontSize": 12,
            "labelLimit": 320,
            "titleColor": palette.muted,
            "titleFontSize": 12,
            "titleFontWeight": 400,
            "symbolType": "stroke",
            "symbolStrokeWidth": 2.5,
            "symbolSize": 500,
            "symbolOpacity": 1,
            "gradientThickness": 10,
        },
        "range": {
            "category": list(palette.series),
            "heatmap": list(palette.ramp),
            "ramp": list(palette.ramp),
            "diverging": list(palette.diverging),
            "ordinal": {"scheme": list(palette.ramp[FIRST_SEEN:])},
        },
        "area": {"opacity": 0.15},
        "point": {"opacity": 1},
        "line": {"strokeWidth": 2.25, "strokeCap": "round", "strokeJoin": "round"},
        "rect": {"stroke": palette.surface, "strokeWidth": 1},
        "style": _make_styles(palette),
        "locale": {"number": NUMBERS},
    }


def _make_styles(palette: Palette) -> dict[str, Any]:
    """Named styles: a mark names its role, and the style sets its appearance."""
    return {
        "mean": {"color": palette.series[0]},
        "band": {"color": palette.series[0]},
        "envelope": {"color": palette.muted, "opacity": 0.14},
        "head": {"color": palette.series[0], "opacity": 0.6},
        "average": {"color": palette.ink, "size": 70},
        "average-span": {"color": palette.ink, "strokeWidth": 2},
        "bar": {"color": palette.series[0], "opacity": 0.85},
        "fit": {"color": palette.series[1], "strokeDash": [6, 3]},
        "outside": {"color": palette.accent, "size": 90, "strokeWidth": 1.75, "filled": False},
        "accent": {"color": palette.accent, "size": 110},
        "accent-spread": {"color": palette.accent, "strokeWidth": 2, "opacity": 0.65},
        "accent-label": {"color": palette.accent, "fontSize": 12, "fontWeight": 600},
        "segment": {"stroke": palette.surface, "strokeWidth": 1.5, "opacity": 1},
        "reference": {"color": palette.muted, "strokeWidth": 1.25, "strokeDash": [4, 4]},
        "reference-label": {"color": palette.muted, "fontSize": 11},
        "graticule": {"color": palette.muted, "opacity": 0.4},
        "outline": {"color": palette.muted},
        "arrow": {"color": palette.muted, "strokeWidth": 1, "opacity": 0.6},
        "ink": {"color": palette.ink, "strokeWidth": 1.5},
        "outlined": {"stroke": palette.muted, "strokeWidth": 0.75},
        "region": {"strokeWidth": 1.5, "opacity": 0.8},
        "region-moved": {"strokeWidth": 1.25, "strokeDash": [2, 4], "opacity": 0.8},
        "ringed": {"stroke": palette.ink, "strokeWidth": 1.5, "size": 120},
        "chosen": {"color": palette.ink, "strokeWidth": 5},
        "chosen-inside": {"color": palette.surface, "strokeWidth": 2},
        "chosen-name": {"color": palette.ink, "fontSize": 14, "fontWeight": 600},
        "chosen-facts": {"color": palette.muted, "fontSize": 12},
        "on-small": {"color": palette.ink, "fontSize": 11},
        "on-large": {"color": palette.surface, "fontSize": 11},
    }


@alt.theme.register(NAME, enable=True)
def attention_geometry() -> alt.theme.ThemeConfig:
    """Theme for a light surface, used if a chart is saved or shown on its own."""
    return {"config": make_config(LIGHT)}  # type: ignore[typeddict-item]
