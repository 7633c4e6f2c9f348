"""Tokenizers of checkpoints in the form of transformers, loaded so that they follow the files.

transformers may build the class that ``tokenizer_config.json`` names, with rules of its own in place of those in
``tokenizer.json``: LLaMA's puts a space before the first word only, and leaves a text that begins with one without.
Here ``tokenizer.json`` is right, and ``add_bos_token`` of ``tokenizer_config.json`` decides about BOS.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.tokenization_utils_base import get_fast_tokenizer_file
from transformers.utils.hub import cached_file

from extract.settings import Bos
from extract.text_starts import find_frame, set_start
from storage.errors import UserError

RULES = ("normalizer", "pre_tokenizer", "model")
"""Parts of ``tokenizer.json`` that decide about the tokens of a text, beside its special tokens."""


def load_tokenizer(where: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer that ``from_pretrained`` finds with these arguments; raises what transformers raises.

    BOS is left out before a text if ``tokenizer_config.json`` says ``add_bos_token: false``.

    ``UserError`` if transformers does not follow ``tokenizer.json``.
    """
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**where)
    config = get_tokenizer_config(**where)
    name = get_fast_tokenizer_file(config.get("fast_tokenizer_files") or [])
    if path := _find_file(where, name):
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


def _find_file(where: dict[str, Any], name: str) -> str | None:
    path: str | None = cached_file(
        where["pretrained_model_name_or_path"],
        name,
        revision=where["revision"],
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return path


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
