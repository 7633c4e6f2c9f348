"""From text to token ids: tokenizers that follow their files, and what they put around a text.

A sequence is a piece of a text. In front of it stands what the tokenizer puts in front of a text, which its
post-processor decides and not the name of a token (GLM begins every text with two tokens, XGLM with ``</s>``); what the
tokenizer puts after a text is left out, since a piece does not end where the text does.

transformers may build the class that ``tokenizer_config.json`` names, with rules of its own in place of those in
``tokenizer.json``: LLaMA's puts a space before the first word only, and leaves a text that begins with one without.
Here ``tokenizer.json`` is right, and ``add_bos_token`` of ``tokenizer_config.json`` decides about BOS.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.tokenization_utils_base import get_fast_tokenizer_file
from transformers.utils.hub import cached_file

from extract.settings import Bos
from storage.errors import UserError

SPACES = "▁Ġ"
"""What tokenizers write for a space, also for one that they put before a text."""


def find_frame(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The token ids that a tokenizer puts before and after a text."""
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
    of it, else BOS alone.
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
        if drops and backend is not None:  # of the text as the normaliser leaves it
            written = Counter(backend.normalizer.normalize_str(text) if backend.normalizer else text)
            return sum(number for one, number in written.items() if not (one.isspace() or spells(one)))
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


RULES = ("normalizer", "pre_tokenizer", "model")
"""Parts of ``tokenizer.json`` that decide about the tokens of a text, beside its special tokens."""


def load_tokenizer(where: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer that ``from_pretrained`` finds with these arguments; raises what transformers raises.

    BOS is left out before a text if ``tokenizer_config.json`` says ``add_bos_token: false``.
    """
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**where)
    config = get_tokenizer_config(**where)
    name = get_fast_tokenizer_file(config.get("fast_tokenizer_files") or [])
    found = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    if path := cached_file(where["pretrained_model_name_or_path"], name, revision=where["revision"], **found):
        tokenizer = _follow_file(tokenizer, Path(path), where)
        if config.get("add_bos_token") is False:
            before, after = find_frame(tokenizer)
            if tokenizer.bos_token_id in before:
                set_start(tokenizer, [index for index in before if index != tokenizer.bos_token_id], after)
    return tokenizer


def check_start(name: str, tokenizer: PreTrainedTokenizerBase, where: dict[str, Any], bos: Bos) -> None:
    """Refuse (``UserError``) a tokenizer whose files disagree about BOS, unless the study decides."""
    says_bos, own = get_tokenizer_config(**where).get("add_bos_token"), tokenizer.bos_token_id
    if bos == "auto" and says_bos is True and own is not None and own not in find_frame(tokenizer)[0]:
        raise UserError(
            f"The tokenizer_config.json of the model '{name}' says add_bos_token, but its tokenizer.json puts no BOS "
            "before a text; decide by --bos always or --bos never (bos in studies.yaml)"
        )


def _follow_file(tokenizer: PreTrainedTokenizerBase, path: Path, where: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer, or one that has the rules of ``tokenizer.json`` if its class has its own."""
    if type(tokenizer) is PreTrainedTokenizerFast:
        return tokenizer
    file = Tokenizer.from_file(str(path))
    if not _list_changed(tokenizer, file):
        return tokenizer
    known = {name: token for name in ("bos_token", "eos_token") if (token := getattr(tokenizer, name)) is not None}
    given = {name: token for name, token in known.items() if file.token_to_id(token) is not None}
    plain: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(**where, **given)
    if changed := _list_changed(plain, file):
        raise UserError(
            f"{path.name} is read by transformers with another {' and '.join(changed)} than it has; save the tokenizer "
            "again with tokenizer.save_pretrained"
        )
    return plain


def _list_changed(tokenizer: PreTrainedTokenizerBase, file: Tokenizer) -> list[str]:
    """The rules in which a tokenizer differs from its file; offsets of tokens in a text are never asked for."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return list(RULES)
    loaded, stored = (json.loads(each.to_str(), object_hook=_drop_offsets) for each in (backend, file))
    changed = [name for name in RULES if loaded[name] != stored[name]]
    if tokenizer("a", verbose=False)["input_ids"] != file.encode("a").ids:
        changed.append("post_processor")
    return changed


def _drop_offsets(part: dict[str, Any]) -> dict[str, Any]:
    """A part of the rules without how offsets are counted."""
    return {name: value for name, value in part.items() if name != "trim_offsets"}
