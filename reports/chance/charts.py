"""Charts of measures and chance: against N for the whole model, head by head, and over all radii."""

from functools import partial

import altair as alt
import pyarrow as pa

from reports.chance import findings
from reports.elements import difference_map, distinguish_lines, layer_chart, n_axis, points, tooltips
from reports.findings import numbers
from reports.findings.numbers import Row

SELECTED = "keys of largest weight"
"""The selections themselves, as the legend names them."""

_LABELS = [SELECTED, *findings.NULLS.values()]


def chance(curves: pa.Table, *, measure: str) -> alt.LayerChart:
    """A measure of the model against N, with both nulls (``separability_by_n``)."""
    rows = _build_rows(curves, measure)
    last = max(row["n"] for row in rows)
    name = findings.MEASURES[measure]
    y = partial(alt.Y, title=f"{name} (ratio)", scale=alt.Scale(domain=[0, 1]))
    color, dash = distinguish_lines("label", _LABELS)
    base = alt.Chart().encode(x=n_axis(last), color=color)
    nulls = {"random_selection": "Random selections", "shuffled_values": "Shuffled value states"}
    tooltip = tooltips(".3~f", n="N", **nulls, selected=name)
    return layer_chart(
        rows,
        f"{name} and chance",
        f"Line chart against N on a log axis. {findings.describe_nulls(curves.to_pylist(), measure)}",
        base.mark_area(clip=True).encode(y=y("band_low:Q"), y2=alt.Y2("band_high:Q")),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=dash),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


def _build_rows(curves: pa.Table, measure: str) -> list[Row]:
    """Build a row for each line and N; outside the band around a null the interval of the difference excludes 0."""
    by_n: dict[int, dict[str, Row]] = {}
    for row in curves.to_pylist():
        if row["measure"] == measure:
            by_n.setdefault(row["n"], {})[row["null_model"]] = row
    pairs: list[Row] = []
    for n, nulls in by_n.items():
        value = next(iter(nulls.values()))["value"]
        same = {"n": n, "selected": value, **{null: row["null_value"] for null, row in nulls.items()}}
        pairs.append({**same, "label": SELECTED, "mean": value, "band_low": None, "band_high": None})
        for null, row in nulls.items():
            known = row["low"] is not None
            ends = {"band_low": value - row["high"], "band_high": value - row["low"]} if known else {}
            pairs.append(
                {**same, "label": findings.NULLS[null], "mean": row["null_value"], "band_low": None, "band_high": None}
                | ends
            )
    return pairs


def chance_map(heads: pa.Table, *, null: str) -> alt.LayerChart:
    """AUC of every head minus that of a null, marked if the interval excludes 0 (``separability_at_n``)."""
    kept = [row for row in heads.to_pylist() if (row["measure"], row["null_model"]) == ("auc", null)]
    shown = {"value": "AUC", "null_value": "AUC by chance", "difference": "Difference"}
    says = findings.describe_heads(kept, null)
    return difference_map(kept, "difference", f"Minus {findings.NULLS[null]}", says, shown)


def separation_curves(curves: pa.Table) -> alt.LayerChart:
    """Recall against the share of the keys left out within the radius (``separation_curves`` at one N)."""
    rows = [{**row, "label": f"{row['auc_rank']} mean AUC: {numbers.name_head(row)}"} for row in curves.to_pylist()]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    color, dash = distinguish_lines("label", labels, columns=1)
    share = alt.X("false_positive_share:Q", title="Share of the keys left out within r")
    x = share.scale(domain=[0, 1]).axis(tickCount=6, grid=False)
    y = alt.Y("recall:Q", title="Recall R(r, N) (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"radius": "Radius r (model units)", "recall": "Recall", "precision": "Precision", "auc": "AUC"}
    tooltip = [*tooltips(",d", layer="Layer", head="Head"), *tooltips(".3~g", **shown)]
    base = alt.Chart().encode(x=x, y=y, color=color)
    return layer_chart(
        rows,
        f"Recall over all radii at N = {rows[0]['n']}",
        f"Line chart. {findings.describe_radii(rows)}",
        base.mark_line().encode(order=alt.Order("point:Q"), strokeDash=dash),
        points(base.encode(tooltip=tooltip)),
    )
