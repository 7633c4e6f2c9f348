"""The head that the explorer begins with."""

from reports.explorer import figures as explorer
from reports.findings.numbers import Row


def head(layer: int, index: int) -> Row:
    kind = ("Retriever", "Mixer", "Reset")[(layer + index) % 3]
    margin = 0.1 + 0.01 * index + 0.05 * layer
    return {"layer": layer, "head": index, "label": kind, "nearest": kind, "margin": margin}


def test_it_begins_with_the_strongest_induction_head_that_does_not_rest_on_the_sink() -> None:
    """Without one that has a clear example with a head that looks at the token before; without both with a kind."""
    heads = [head(layer, index) for layer in range(2) for index in range(3)]
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
