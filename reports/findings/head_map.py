"""Findings on the map of heads: what its axes are and hold, and how firm the kinds are on it."""

from collections.abc import Sequence

from reports.findings.numbers import Row, count, format_with_interval, join_sentences, number, percent

CURVES = {
    "cos_sink": "the cosine of s_N with the sink",
    "cos_last": "the cosine of s_N with the last token",
    "recall": "Recall",
}
"""The curves of a head, as sentences name them."""

PATTERNS = {
    "previous": "the token before the query",
    "induction": "the token after an earlier copy of the query’s",
    "duplicate": "earlier copies of the query’s token",
    "diffuse": "all tokens nearly alike",
    "sink": "position 0",
    "self": "the query’s own token",
    "local": "the last eight tokens",
}
"""What heads are known to look at (``head_labels``), in the order of legends."""

NO_PATTERN = "none"
"""In place of a pattern, for a head that has none."""


def describe_map(heads: Sequence[Row], axes: Sequence[Row], measures: Sequence[Row]) -> str:
    """Axes of the map, and how firm the kinds are (``head_map``, its axes, ``measures``)."""
    share = next((row for row in measures if row["measure"] == "plane_share"), None)
    moved = sum(not row["kept"] for row in heads)
    return join_sentences(
        f"Two axes hold {_format_share(share)} of the differences between the curves of {count(len(heads), 'head')}: "
        f"{' and '.join(_describe_axis(row) for row in axes if row['share'] > 0)}."
        if share
        else "",
        f"{moved:,} of {count(len(heads), 'head')} {'changes' if moved == 1 else 'change'} kind if one threshold is "
        "halved, doubled or changed by 10 %.",
    )


def _describe_axis(row: Row) -> str:
    """What an axis mostly is (``head_map_axes``)."""
    where = {"x": "to the right", "y": "upwards"}[row["axis"]]
    way = "rises" if row["direction"] > 0 else "falls"
    return f"{where} {CURVES[row['curve']]} {way} most"


def _format_share(row: Row) -> str:
    """A share with its interval, in percent."""
    return format_with_interval(
        row["value"], row["value_low"], row["value_high"], percent, sequences=row.get("sequences") or 0
    )


def name_patterns(row: Row) -> str:
    """The patterns of a head, that of the largest lift first (``head_map``)."""
    return ", ".join(row["patterns"] or ()) or NO_PATTERN


def describe_label(row: Row) -> str:
    """A label of a head with its share and lift, and where it has them (``labels_of_heads``)."""
    share = format_with_interval(row["share"], row["share_low"], row["share_high"], percent, sequences=row["sequences"])
    if row["label"] == "diffuse":
        return f"diffuse: entropy {share} of the largest possible"
    where = "on repeated tokens" if row["text"] == "probe" else "in the text"
    return f"{row['label']}: {share} of its weight {where}, {number(row['lift'])} times chance"
