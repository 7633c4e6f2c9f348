"""Tokenizers of GGUF files: the rules that a file names, where transformers' reader leaves them out.

Of a byte-level tokenizer a file names how text is split (``tokenizer.ggml.pre``), after the tokenizer of a model; the
regular expressions are in llama.cpp. transformers' reader knows some names, and splits text of all others as GPT-2
does. Here they are refused unless they are in ``SPLITS``. What begins a text, if the file does not say, is llama.cpp's
default.
"""

from typing import NoReturn

from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from extract.gguf_models import TOKENIZER, TOKENS, GgufModel
from storage.errors import UserError

USER_DEFINED = 4
"""Type of a token that is matched whole in a text."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

SPLITS: dict[str, tuple[str, ...]] = {
    **{name: (split,) for name, split in GGUF_PRE_TOKENIZER_SPLITS.items()},
    **dict.fromkeys(("gpt-2", "phi-2"), (_GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact"), (r"\p{N}", _GPT2)),
}
"""Expressions by which text is split, one after the other, by their name in the file."""

WHOLE = {
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    *("tekken", "gpt-4o"),
}
"""Names whose tokenizers take a part of the text that is a token as it is, without merges."""

BEGINS = WHOLE - {"gpt-4o"}
"""Names with which text begins with BOS unless the file says otherwise."""

COMPOSED = {"qwen2", "qwen35"}
"""Names whose tokenizers compose characters (NFC) first."""


def follow_file(tokenizer: PreTrainedTokenizerBase, model: GgufModel) -> PreTrainedTokenizerBase:
    """The tokenizer that transformers has read from a file, with the rules that the file names.

    ``UserError`` if the kind of tokenizer or the way in which it splits text is not known, or text should begin with a
    BOS that the file does not name.
    """
    metadata, backend = model.header.metadata, tokenizer.backend_tokenizer
    kind, pre = metadata.get(f"{TOKENIZER}model"), metadata.get(f"{TOKENIZER}pre")
    prefix = metadata.get(
        f"{TOKENIZER}add_space_prefix", kind == "llama" and not model.architecture.startswith("gemma")
    )
    if kind == "gpt2":
        if pre not in SPLITS:
            _refuse(model, f"tokenizer.ggml.pre {pre!a}, whose way to split text is not known", ", ".join(SPLITS))
        if prefix:
            _refuse(model, "add_space_prefix beside a byte-level tokenizer, which puts no space before a text", "false")
        backend.normalizer = normalizers.NFC() if pre in COMPOSED else None
        splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in SPLITS[pre]]
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, as_bytes])
        backend.model.ignore_merges = pre in WHOLE
    elif kind == "llama":
        spaces = normalizers.Replace(" ", "▁")
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
        backend.pre_tokenizer = None
        _add_spaces(tokenizer, model)
    elif kind != "gemma4":
        _refuse(model, f"a tokenizer of the kind {kind!a}", "gpt2, llama, gemma4")
    _set_bos(tokenizer, model, default=kind == "llama" or pre in BEGINS)
    return tokenizer


def _add_spaces(tokenizer: PreTrainedTokenizerBase, model: GgufModel) -> None:
    """Let runs of spaces that the file marks as whole tokens be matched as such, the longest first.

    transformers' reader spells those of Gemma as the vocabulary of its other form does, and does not mark them.
    """
    vocabulary, metadata = tokenizer.get_vocab(), model.header.metadata
    marked = zip(metadata[TOKENS], metadata.get(f"{TOKENIZER}token_type", ()), strict=False)
    runs = (token.replace(" ", "▁") for token, kind in marked if kind == USER_DEFINED and token not in vocabulary)
    tokenizer.add_tokens([AddedToken(run, normalized=True) for run in runs if run in vocabulary])


def _set_bos(tokenizer: PreTrainedTokenizerBase, model: GgufModel, *, default: bool) -> None:
    """Let text begin with BOS if the file says so; that of Gemma 4 never does, since its chat template writes BOS."""
    begins = model.adds_bos if model.adds_bos is not None else default
    if begins and tokenizer.bos_token_id is None:
        _refuse(model, "a tokenizer that puts BOS before a text", f"{TOKENIZER}bos_token_id, which it lacks")
    if tokenizer.add_bos_token != begins and model.header.metadata.get(f"{TOKENIZER}model") != "gemma4":
        tokenizer.add_bos_token = begins


def _refuse(model: GgufModel, what: str, known: str) -> NoReturn:
    raise UserError(
        f"The model '{model.name}' has {what} (needed: {known}); measure its safetensors, or convert it again"
    )
