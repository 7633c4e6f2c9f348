"""The text of tokens, of tokenizers that split characters into bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.decoding import BROKEN, decode_sequences, name_tokens
from tests.extract.tiny import tiny_tokenizer

TEXT = "Grüße か наш 🙂 e"


def fall_back() -> PreTrainedTokenizerFast:
    """A tokenizer as SentencePiece's: words, and every byte as a token of its own."""
    pieces = {"<unk>": 0, **{f"<0x{byte:02X}>": 1 + byte for byte in range(256)}}
    pieces |= {piece: 257 + index for index, piece in enumerate(["▁", "a", "e", "G", "r", "ß"])}
    backend = Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


TOKENIZERS = {"bytes": tiny_tokenizer(), "byte fallback": fall_back()}


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    return next(decode_sequences(tokenizer, [np.array(ids, np.int32)]))


def spell(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of the bytes of a text, one for each, whatever the tokenizer would merge."""
    if tokenizer is TOKENIZERS["byte fallback"]:
        return [1 + byte for byte in text.encode()]
    byte_of = {tokenizer.decode([index]): index for index in range(tokenizer.vocab_size)}
    whole = {text: tokenizer(text, add_special_tokens=False)["input_ids"] for text in {*text}}
    return [index for letter in text for index in ([byte_of[letter]] if letter in byte_of else whole[letter])]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_character_of_several_tokens_stands_at_the_first(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = spell(tokenizer, TEXT)
    texts = decode(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == TEXT
    assert [text for text in texts if text] == [*TEXT]
    assert len(ids) == len(TEXT.encode()), "every character is split"
    assert texts[(at := texts.index("🙂")) : at + 4] == ["🙂", "", "", ""]
    named = name_tokens(texts)
    assert named[texts.index("ü") : texts.index("ü") + 3] == ["ü", "ü", "ß"]
    alone = [tokenizer.decode([index]) for index in ids]
    assert BROKEN in "".join(alone), "without joining it is mangled"


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12))
def test_whatever_the_text_its_tokens_are_the_text(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert "".join(decode(tokenizer, spell(tokenizer, text))) == text


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_bytes_that_are_no_character_stay_so_and_spoil_no_others(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = spell(tokenizer, "ü")
    assert decode(tokenizer, [*spell(tokenizer, "e"), ids[0]]) == ["e", BROKEN], "the sequence ends within a character"
    assert decode(tokenizer, [ids[1], *spell(tokenizer, "aüe")]) == [BROKEN, "a", "ü", "", "e"], "or begins in one"


def test_tokens_may_begin_and_end_within_characters() -> None:
    """Merged bytes: two characters of three bytes in tokens of two."""
    letters, _ = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("かな")[0]
    parts = [letters[at : at + 2] for at in (0, 2, 4)]
    vocabulary = {piece: index for index, piece in enumerate([*dict.fromkeys(letters), *parts])}
    backend = Tokenizer(models.BPE(vocabulary, [(part[0], part[1]) for part in parts]))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert decode(tokenizer, [vocabulary[part] for part in parts]) == ["か", "な", ""]
