"""One text as HTML: the heads of a model with the keys that each selects, and the text shaded by the weights of one.

Tokens are untrusted: they reach the page only through Jinja's escaping.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from reports import theme
from reports.rendering import render_fragment

SHOWN = 6  # Keys of each head that the table shows


@dataclass(frozen=True)
class TextPage:
    """A part of a page that notebooks show: no scripts, nothing is loaded."""

    html: str

    def _repr_html_(self) -> str:
        """The HTML, as notebooks ask for it."""
        return self.html


def render_text(
    model: str,
    query: int,
    n: int,
    tokens: pa.Table,
    heads: pa.Table,
    top_keys: pa.Table,
    chosen: tuple[int, int] | None = None,
) -> TextPage:
    """Render the heads of a model on one text, as in ``attention_geometry.Analysis``, shaded by the weights of one."""
    keys: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in top_keys.to_pylist():
        keys[row["layer"], row["head"]].append(row)
    if chosen is not None and chosen not in keys:
        raise ValueError(f"there is no head {chosen[1]} in layer {chosen[0]}")
    at = {} if chosen is None else {row["position"]: row for row in keys[chosen]}
    return TextPage(
        render_fragment(
            "text.html.j2",
            model=model,
            query=query,
            n=n,
            chosen=chosen,
            tokens=[(position, token, at.get(position)) for position, token in enumerate(tokens["token"].to_pylist())],
            heads=[(row, keys[row["layer"], row["head"]][:SHOWN]) for row in heads.to_pylist()],
            light=theme.LIGHT,
            dark=theme.DARK,
        )
    )
