"""From text to token ids: what a model's tokenizer puts around a text, and how the text itself is read.

A sequence is a piece of a text. In front of it stands what the tokenizer puts in front of a text, which its
post-processor decides and not the name of a token (GLM begins every text with two tokens, XGLM with ``</s>``); what the
tokenizer puts after a text is left out, since a piece does not end where the text does.
"""

from collections.abc import Sequence

from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from extract.settings import Bos
from storage.errors import UserError


def find_frame(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The token ids that a tokenizer puts before and after a text.

    Raises
    ------
    UserError
        If it changes the tokens of the text itself.
    """
    plain, framed = (
        tokenizer("a", add_special_tokens=special, verbose=False)["input_ids"] for special in (False, True)
    )
    for at in range(len(framed) - len(plain) + 1):
        if plain and framed[at : at + len(plain)] == plain:
            return framed[:at], framed[at + len(plain) :]
    msg = f"The tokenizer makes {framed} of the text 'a', but {plain} without special tokens; choose another tokenizer"
    raise UserError(msg)


def find_start(tokenizer: PreTrainedTokenizerBase, bos: Bos = "auto") -> list[int]:
    """The token ids with which every sequence begins.

    Parameters
    ----------
    bos
        ``auto``: what the tokenizer puts before a text; ``never``: nothing; ``always``: the same as ``auto`` if BOS is
        part of it, else BOS alone.

    Raises
    ------
    UserError
        If BOS is asked for and the tokenizer has none, or as ``find_frame``.
    """
    if bos == "never":
        return []
    start, own = find_frame(tokenizer)[0], tokenizer.bos_token_id
    if bos == "auto" or own in start:
        return start
    if own is None:
        msg = "The tokenizer has no BOS token, which bos: always puts before every sequence; use auto or never"
        raise UserError(msg)
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


def spell_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Tokens as the vocabulary spells them."""
    return [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
