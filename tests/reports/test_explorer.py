"""The explorer as a specification: what it holds, what it leaves out, and that it draws whatever a study is like."""

from typing import Any

import pytest
import vl_convert

from reports.explorer import figures as explorer
from reports.explorer.figures import LINES
from reports.findings.numbers import Row

N = [1, 2, 3, 5, 8]


def head(layer: int, index: int, **changes: Any) -> Row:
    kind = ("Retriever", "Mixer", "Reset")[(layer + index) % 3]
    row = {"layer": layer, "head": index, "kv_head": 0, "label": kind, "nearest": kind, "agreement": 2 / 3}
    row |= {"sequences": 3, "margin": 0.1 + 0.01 * index + 0.05 * layer, "elbow_n": 3, "rho_0": 0.1 * layer}
    return row | {"precision": 0.123456 + layer / 10, "recall": 0.654321 - layer / 10} | changes


def curve(layer: int, index: int, n: list[int] = N, **changes: Any) -> Row:
    columns = [column for name in LINES for column in LINES[name]]
    lists = {column: [(len(column) + layer + index / 7) / (10 * value) for value in n] for column in columns}
    return {"layer": layer, "head": index, "n": n, **lists, **changes}


def made(layers: int = 2, heads: int = 3) -> tuple[list[Row], list[Row]]:
    places = [(layer, index) for layer in range(layers) for index in range(heads)]
    return [head(*place) for place in places], [curve(*place) for place in places]


def specify(heads: list[Row], curves: list[Row], n: int = 4) -> dict[str, Any]:
    first, _ = explorer.choose_first(heads, [])
    chart = explorer.draw_explorer(heads, curves, n=n, first=first)
    found: dict[str, Any] = chart.to_dict(validate=False)  # ``test_figures`` validates those of studies
    return found


def test_it_begins_with_the_strongest_induction_head_that_does_not_rest_on_the_sink() -> None:
    """Without one that has a clear example with a head that looks at the token before; without both with a kind."""
    heads = made()[0]
    heads[0] |= {"patterns": "induction", "sink_weight": 0.6, "margin": 9.0}
    heads[1] |= {"patterns": "induction, sink", "sink_weight": 0.1, "margin": 8.0}
    heads[2] |= {"patterns": "induction", "sink_weight": 0.2, "label": "Other"}
    strongest = [
        {"label": label, "layer": head["layer"], "head": head["head"], "share": 0.5, "held": held}
        for label, head, held in (
            ("duplicate", heads[5], 1.0),
            *(("induction", head, 0.9) for head in heads[:3]),
            ("induction", heads[3], 1.0),
            ("previous", heads[4], 0.9),
        )
    ]
    assert explorer.choose_first(heads, strongest) == (heads[2], strongest[3])
    heads[2] |= {"patterns": "induction, sink"}
    assert explorer.choose_first(heads, strongest) == (heads[3], strongest[4])
    strongest[4] |= {"held": 0.49}
    assert explorer.choose_first(heads, strongest) == (heads[4], strongest[5])
    strongest[5] |= {"held": 0.49}
    assert explorer.choose_first(heads, strongest) == (heads[5], strongest[0])
    assert explorer.choose_first(heads, strongest[1:]) == (heads[5], None), (
        "the clearest that does not rest on the sink"
    )
    assert explorer.choose_first(heads[:2], strongest[1:3]) == (heads[0], None)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("heads", "curves"),
    [
        made(),
        ([head(0, 0)], [curve(0, 0, [1])]),
        ([head(0, 0, rho_0=None), head(0, 1)], [curve(0, 0, cos_sink=[None] * len(N)), curve(0, 1)]),
        ([head(0, 0, recall=None, precision=None), head(0, 1)], [curve(0, 1)]),
        ([head(0, 0, label=None, nearest=None, margin=None, agreement=None, elbow_n=None)], [curve(0, 0)]),
        made(2, 40),
    ],
    ids=["small", "one N", "hidden sink", "no curves", "no label", "many heads"],
)
def test_it_draws_without_a_warning(heads: list[Row], curves: list[Row]) -> None:
    drawn = vl_convert.vegalite_to_svg(specify(heads, curves))
    assert "NaN" not in drawn
    assert "undefined" not in drawn
    assert "Layer " in drawn
    assert ("· 2 of 3 sequences ·" in drawn) == (heads[0]["agreement"] is not None)
