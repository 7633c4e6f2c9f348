"""From text to token ids: what a model's tokenizer puts around a text, and how the text itself is read.

A sequence is a piece of a text. In front of it stands what the tokenizer puts in front of a text, which its
post-processor decides and not the name of a token (GLM begins every text with two tokens, XGLM with ``</s>``); what the
tokenizer puts after a text is left out, since a piece does not end where the text does.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from tokenizers import models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from extract.settings import Bos
from storage.errors import UserError

SPACES = "▁Ġ"
"""What tokenizers write for a space, also for one that they put before a text."""


def find_frame(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The token ids that a tokenizer puts before and after a text.

    ``UserError`` if it changes the tokens of the text itself.
    """
    plain, framed = (
        tokenizer("a", add_special_tokens=special, verbose=False)["input_ids"] for special in (False, True)
    )
    for at in range(len(framed) - len(plain) + 1):
        if plain and framed[at : at + len(plain)] == plain:
            return framed[:at], framed[at + len(plain) :]
    raise UserError(
        f"The tokenizer makes {framed} of the text 'a', but {plain} without special tokens; choose another tokenizer"
    )


def find_start(tokenizer: PreTrainedTokenizerBase, bos: Bos = "auto") -> list[int]:
    """The token ids with which every sequence begins.

    ``auto``: what the tokenizer puts before a text; ``never``: nothing; ``always``: the same as ``auto`` if BOS is part
    of it, else BOS alone. ``UserError`` if BOS is asked for and the tokenizer has none, or as ``find_frame``.
    """
    if bos == "never":
        return []
    start, own = find_frame(tokenizer)[0], tokenizer.bos_token_id
    if bos == "auto" or own in start:
        return start
    if own is None:
        raise UserError(
            "The tokenizer has no BOS token, which bos: always puts before every sequence; use auto or never"
        )
    return [own]


def set_start(tokenizer: PreTrainedTokenizerBase, start: Sequence[int], end: Sequence[int]) -> None:
    """Let a tokenizer of the library tokenizers put these token ids before and after every text."""
    names = {index: tokenizer.convert_ids_to_tokens(index) for index in (*start, *end)}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[*(names[index] for index in start), "$A", *(names[index] for index in end)],
        special_tokens=[(name, index) for index, name in names.items()],
    )


def list_special_tokens(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The ids of all special tokens."""
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def find_unknown(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The id of the token that stands for characters which the tokenizer does not know; None if it has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    index: int | None = None
    if backend is None:
        index = tokenizer.unk_token_id
    elif isinstance(backend.model, models.Unigram):
        index = json.loads(backend.to_str())["model"]["unk_id"]
    elif name := getattr(backend.model, "unk_token", None):
        index = backend.token_to_id(name)
    return index


def make_counter(tokenizer: PreTrainedTokenizerBase) -> Callable[[str, Sequence[int]], int]:
    """A function that counts the characters of a text, given with its token ids, that the tokens do not spell.

    Those of a token for unknown characters, and those that the tokenizer drops, as BPE without such a token does.
    White space is not counted, nor what the tokenizer's own rules take out before it looks for tokens.
    """
    unknown, backend = find_unknown(tokenizer), getattr(tokenizer, "backend_tokenizer", None)
    drops = unknown is None and backend is not None and isinstance(backend.model, models.BPE)
    spells = lru_cache(2**16)(partial(_is_spelled, backend, set(tokenizer.get_vocab()) if drops else set()))

    def count(text: str, ids: Sequence[int]) -> int:
        if drops:
            return _count_dropped(backend, spells, text)
        if unknown is None or unknown not in ids:
            return 0
        return ids.count(unknown) if backend is None else _count_unknown(tokenizer, unknown, text)

    return count


def _count_unknown(tokenizer: PreTrainedTokenizerBase, unknown: int, text: str) -> int:
    """Characters of a text that are in the token for unknown ones."""
    read = tokenizer(
        text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    spans = (span for index, span in zip(read["input_ids"], read["offset_mapping"], strict=True) if index == unknown)
    return len({at for first, last in spans for at in range(first, last) if not text[at].isspace()})


def _count_dropped(backend: Any, spells: Callable[[str], bool], text: str) -> int:
    """Characters of a text, as the normaliser leaves it, for which a BPE without an unknown token has no token."""
    characters = Counter(backend.normalizer.normalize_str(text) if backend.normalizer else text)
    return sum(number for character, number in characters.items() if not (character.isspace() or spells(character)))


def _is_spelled(backend: Any, vocabulary: set[str], character: str) -> bool:
    """Whether a vocabulary has a character as the pre-tokenizer writes it, or all its bytes."""
    pre, model = backend.pre_tokenizer, backend.model
    written = "".join(part for part, _ in pre.pre_tokenize_str(character)) if pre else character
    begin, end = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
    forms = ("", ""), (begin, ""), ("", end), (begin, end)
    known = all(
        any(f"{before}{part}{after}" in vocabulary for before, after in forms) for part in written if part not in SPACES
    )
    return known or (model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in character.encode()))


def spell_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Tokens as the vocabulary spells them."""
    return [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
