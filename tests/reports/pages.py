"""A page as a reader's browser takes it apart."""

import base64
import gzip
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """Elements of a page: (tag, attributes, text inside)."""

    def __init__(self, page: Path | str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self._after_index = False
        self.feed(page if isinstance(page, str) else page.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"td", "tr"}:  # whose end tags may be left out
            while self._open and self.elements[self._open[-1]][0] in ({"td"} if tag == "td" else {"td", "tr"}):
                self._open.pop()
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))
        if tag not in {"meta", "link", "img", "br", "input"}:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Text of the open elements; an index is written as in a sentence, ``r_min``, and parts no words."""
        is_index = bool(self._open) and self.elements[self._open[-1]][0] == "sub"
        for index in self._open:
            parts = self.elements[index][2]
            if (is_index or self._after_index) and parts:
                parts[-1] += f"_{data}" if is_index else data
            else:
                parts.append(data)
        self._after_index = is_index

    def find(self, tag: str, **attributes: str) -> Iterator[tuple[dict[str, str], str]]:
        for name, found, text in self.elements:
            if name == tag and attributes.items() <= found.items():
                yield found, "".join(text)

    def text(self, tag: str, **attributes: str) -> str:
        """Text of the one such element, words apart."""
        ((_, _, parts),) = (
            found for found in self.elements if found[0] == tag and attributes.items() <= found[1].items()
        )
        return " ".join(" ".join(parts).split())


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def normalise(text: str) -> str:
    """A text with its words one space apart, as ``Page.text`` has it."""
    return " ".join(text.split())
