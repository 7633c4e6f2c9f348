"""How to read a head, on a small example: keys on a circle, and two balls around their sum (Figure 1)."""

import numpy as np
import pyarrow as pa

from geometry.selection.example import Intuition, build_intuition
from reports.figures import Figure, convert_column
from reports.findings import numbers
from reports.intuition import charts, findings


def build_example() -> Figure:
    """What selection, balls, Precision and Recall are."""
    example = build_intuition()
    table = build_key_table(example)
    rows: list[numbers.Row] = table.to_pylist()
    return Figure(
        "example",
        "How to read a head: tokens on a circle, weighted, and the two balls",
        findings.describe_example(rows, example.r_min, example.r_max),
        "First: value states of norm 1. Second: each times its weight, which moves it towards the origin. Third: the "
        "same, enlarged; lines lead to the keys that set the radii. In Figure 1 of the paper Precision is 3/8 and "
        "Recall 2/3; it prints no coordinates, so these are chosen to give the same values.",
        None,
        part=table,
        paper="Figure 1",
        folded=True,
        marks="An example, not this study. In the third, the cross is s; the solid circle has radius r_min, the "
        "dashed one r_max; filled stars count for Recall, filled dots against Precision.",
        charts=(
            charts.value_states(table),
            charts.weighted_states(table),
            charts.balls(table, s=(float(example.s[0]), float(example.s[1])), r_min=example.r_min, r_max=example.r_max),
        ),
    )


def build_key_table(example: Intuition) -> pa.Table:
    """Build the table of the keys of the example, one row each.

    Returns
    -------
    pa.Table
        key (from 1, in order of angle), weight (share), selected, v_x, v_y, y_x, y_y, distance (from s; model units),
        within (no farther from s than r_min if selected, than r_max if not).
    """
    distance = np.linalg.norm(example.scaled - example.s, axis=1)
    reach = np.where(example.selected, example.r_min, example.r_max)
    columns = {
        "key": np.arange(1, len(example.weights) + 1),
        "weight": example.weights,
        "selected": example.selected,
        "v_x": example.values[:, 0],
        "v_y": example.values[:, 1],
        "y_x": example.scaled[:, 0],
        "y_y": example.scaled[:, 1],
        "distance": distance,
        "within": distance <= reach,
    }
    return pa.table({name: convert_column(column) for name, column in columns.items()})
