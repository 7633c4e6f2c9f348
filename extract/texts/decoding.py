"""The tokens of a text, and the text of each of them, so that the texts of all in order are the text.

Tokenizers of bytes, and those that fall back to bytes, spread a character such as ü, か or an emoji over several
tokens, none of which is text by itself. The character then stands at the first of them; the others continue it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from extract.hub import silence_libraries, summarise_error
from storage.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

BROKEN = "\ufffd"
"""What tokenizers decode bytes to that are no character."""

LONGEST = 64
"""Most tokens that are joined until the text of all is whole: tokens may begin and end within characters."""

Decode = Callable[[tuple[int, ...]], str]


def encode_text(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """The token ids of a text, without any around it; the spelling of a special token in it is text."""
    try:
        ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[
            "input_ids"
        ]
    except Exception as error:  # the library raises no other type
        raise UserError(
            f"The model's tokenizer cannot read the text ({summarise_error(error)}); get the one that belongs to the "
            "model"
        ) from error
    return ids


def decode_sequences(
    tokenizer: "PreTrainedTokenizerBase", sequences: "Iterable[NDArray[np.int32]]"
) -> Iterator[list[str]]:
    """The text of each token of each sequence, including spaces; empty for a token that continues a character.

    Ids are decoded after another token, since some tokenizers drop a leading space at the beginning of a text. What is
    no character even together with the tokens after it is decoded as U+FFFD.
    """
    before = encode_text(tokenizer, "a")
    start = len(str(tokenizer.decode(before)))

    @lru_cache(2**17)
    def decode(ids: tuple[int, ...]) -> str:
        return str(tokenizer.decode([*before, *ids]))[start:]

    for sequence in sequences:
        texts: list[str] = []
        with silence_libraries():
            while len(texts) < len(sequence):
                texts += _join(decode, sequence[len(texts) : len(texts) + LONGEST].tolist())
        yield texts


def _join(decode: Decode, ids: Sequence[int]) -> list[str]:
    """The texts of the first token and of those that it needs to be whole; U+FFFD alone if none make it so."""
    parts: list[str] = []
    for end in range(1, len(ids) + 1):
        parts.append(decode(tuple(ids[:end])))
        if BROKEN not in parts[-1]:
            ends = [len(part.rstrip(BROKEN)) + part.endswith(BROKEN) for part in parts]
            return [parts[-1][first:last] for first, last in zip([0, *ends], ends, strict=False)]
        if BROKEN in parts[-1].rstrip(BROKEN):  # what follows mends no character before it
            break
    return parts[:1]


def name_tokens(texts: Iterable[str]) -> list[str]:
    """What to call each token by itself: its text, or the character that it continues."""
    names: list[str] = []
    for text in texts:
        names.append(text or (names[-1] if names else text))
    return names
