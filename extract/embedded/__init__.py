"""Python's own manual as a corpus: the topics of ``pydoc_data``, part of every Python.

Holds the split into topics that the embedded model was trained on and topics held out from its training.
"""

from typing import Literal
from zlib import crc32

Split = Literal["train", "held_out"]


def list_topics(split: Split) -> list[tuple[str, str]]:
    """The topics of one split of the manual as (name, text), ordered by name.

    The split depends only on a topic's name (CRC-32 modulo 5), so a topic stays in its split when another Python
    version adds or drops topics. Some topics of the manual quote others at length; every paragraph that is also in a
    held-out topic is removed from the training split.
    """
    from pydoc_data.topics import topics as manual

    held_out = {name: text for name, text in sorted(manual.items()) if crc32(name.encode()) % 5 == 0}
    if split == "held_out":
        return list(held_out.items())
    hidden = {" ".join(paragraph.split()) for text in held_out.values() for paragraph in text.split("\n\n")}

    def remove_hidden(text: str) -> str:
        return "\n\n".join(part for part in text.split("\n\n") if " ".join(part.split()) not in hidden)

    return [(name, remove_hidden(text)) for name, text in sorted(manual.items()) if name not in held_out]
