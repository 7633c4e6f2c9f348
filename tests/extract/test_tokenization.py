"""The text that a model reads is what its own tokenizer makes of it, and the texts of its tokens are the text."""

import json
import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.gguf import models as gguf_models
from extract.gguf.loading import load_tokenizer
from extract.gguf.models import GgufModel
from extract.models.loading import describe
from extract.settings import CorpusSettings
from extract.texts import corpora
from extract.texts.decoding import BROKEN, decode_sequences, name_tokens
from extract.texts.decoding import encode_text as encode
from extract.texts.tokenization import find_start, spell_tokens
from tests.extract import tiny
from tests.extract.gguf_files import make_model, write_gguf
from tests.extract.tiny import settings, text, tiny_tokenizer, write_checkpoint
from tests.refusals import read_refusal

SPECIAL = ("<s>", "</s>", "[gMASK]", "<sop>")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
"""The expressions in the tokenizer.json of Llama 3 and of Qwen 2."""

WRITTEN = (
    "How are you? The year 2024 had 366 days; 650841823 people said \"don't\", and WE'LL see.\n\n\tdef f(x):\n"
    "        return x ** 2  # three   spaces\n cafe\u0301 na\u00efve 日本語 \u00bd "
    "<s>x</s> [gMASK] 12 1 123 1234 !!??\r\n"
)


def split_by(expression: str) -> Any:
    """As in the tokenizer.json of Llama 3 and Qwen 2."""
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def split_digits() -> Any:
    """As in the tokenizer.json of StarCoder 2 and SmolLM."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


make_byte_level = partial(tiny.make_byte_level, special=SPECIAL, more=WRITTEN * 9)


def make_sentencepiece(*, prefix: bool = True) -> Tokenizer:
    """A tokenizer as LLaMA 2 has it: a space is ▁, one is put before every text, bytes are a fallback."""
    spaces = normalizers.Replace(" ", "▁")
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    trained.train_from_iterator((text(400) + WRITTEN * 5).split("\n"), trainer)
    state = json.loads(trained.to_str())["model"]
    vocabulary = dict(state["vocab"])
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    merges = [tuple(pair) for pair in state["merges"]]
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ("<unk>", *SPECIAL)])
    return tokenizer


def begin_with(tokenizer: Tokenizer, *names: str, end: str | None = None) -> Tokenizer:
    """The tokenizer with a post-processor that puts these tokens before a text, and one after it."""
    around = [*names, *([end] if end else [])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*names, "$A", *([end] if end else [])],
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(around)],
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, **config: Any) -> Path:
    """A checkpoint with this tokenizer."""
    write_checkpoint(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    given = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"} | config
    kept = {name: value for name, value in given.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept), encoding="utf-8")
    return folder


def read(model: Path, bos: str = "auto") -> Any:
    return describe(settings(model, bos=bos, context_length=16)).tokenizer


def begin(model: Path, bos: str = "auto") -> list[str]:
    """What sequences begin with, as the provenance has it."""
    start: list[str] = describe(settings(model, bos=bos, context_length=16)).provenance["tokenizer"]["start"]
    return start


def draw_texts(count: int = 200) -> list[str]:
    """Pieces of prose, code, numbers and spellings of special tokens."""
    rng, long = random.Random(0), text(3000)
    pieces = ["  two", " ", "", "\n\n", "tail  ", *WRITTEN.split(" "), WRITTEN]
    while len(pieces) < count:
        at = rng.randrange(len(long) - 60)
        pieces.append(long[at : at + rng.randrange(60)] + rng.choice(pieces) + str(rng.randrange(10**6)))
    return pieces


STARTS: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any], dict[str, list[str] | None]]] = {
    "BOS": (lambda: begin_with(make_byte_level(), "<s>"), {}, {"auto": ["<s>"], "always": ["<s>"]}),
    "none": (make_byte_level, {}, {"auto": [], "always": ["<s>"]}),
    "no BOS token": (make_byte_level, {"bos_token": None}, {"auto": [], "always": None}),
    "GLM": (
        lambda: begin_with(make_byte_level(), "[gMASK]", "<sop>"),
        {"bos_token": None},
        {"auto": ["[gMASK]", "<sop>"], "always": None},
    ),
    "BOS that is switched off": (
        lambda: begin_with(make_byte_level(), "<s>"),
        {"add_bos_token": False},
        {"auto": [], "always": ["<s>"]},
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_sequences_begin_with_what_the_tokenizer_puts_before_a_text(name: str, tmp_path: Path) -> None:
    make, config, expected = STARTS[name]
    folder = save(make(), tmp_path / "model", **config)
    if config.get("add_bos_token") is None:
        own = AutoTokenizer.from_pretrained(folder)
        assert own(WRITTEN)["input_ids"][: len(expected["auto"] or [])] == own.convert_tokens_to_ids(expected["auto"])
    for bos, start in (expected | {"never": []}).items():
        if start is None:
            said = read_refusal(describe, settings(folder, bos=bos, context_length=16))
            assert "The tokenizer has no BOS token, which bos: always puts before every sequence" in said
        else:
            assert begin(folder, bos) == start


def test_files_that_disagree_about_bos_are_refused_unless_the_study_decides(tmp_path: Path) -> None:
    folder = save(make_byte_level(), tmp_path / "model", add_bos_token=True)
    said = read_refusal(describe, settings(folder))
    assert "says add_bos_token, but its tokenizer.json puts no BOS before a text" in said
    assert (begin(folder, "always"), begin(folder, "never")) == (["<s>"], [])


def test_the_spelling_of_a_special_token_is_text(tmp_path: Path) -> None:
    tokenizer = read(save(begin_with(make_byte_level(), "<s>"), tmp_path / "model"))
    assert not set(encode(tokenizer, WRITTEN)) & set(range(len(SPECIAL)))
    assert set(tokenizer(WRITTEN, add_special_tokens=False)["input_ids"]) & set(range(len(SPECIAL)))
    assert tokenizer.decode(encode(tokenizer, "a <s> b")) == "a <s> b"


def test_special_tokens_that_a_tokenizer_cannot_take_as_text_are_counted(tmp_path: Path) -> None:
    """A vocabulary of words has no other way to spell one."""
    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "?": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<s>", "</s>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    (tmp_path / "book.txt").write_text("a <s> b a </s> a b a b a b", encoding="utf-8")
    chosen = corpora.select_windows(CorpusSettings(id=str(tmp_path / "book.txt")), tokenizer, 5, 2, 0)
    assert chosen.counts.special_tokens == 2


def make_bare(kind: str) -> Tokenizer:
    """A tokenizer of ten letters and the space of ``BARE`` alone, without bytes; the first token is special."""
    letters = {letter: index for index, letter in enumerate(["<s>", "</s>", *"abcdefghiz", "▁", "Ġ", "ab"])}
    words = {word: index for index, word in enumerate(["<s>", "<unk>", *BARE.replace("zéü", "").split()])}
    pieces = [("<unk>", 0.0), *((letter, -2.0) for letter in letters)]
    model, pre = {
        "gpt2": (models.BPE(letters, [("a", "b")]), pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "Unigram": (models.Unigram(pieces, unk_id=0), pre_tokenizers.Metaspace()),
        "words": (models.WordLevel(words, unk_token="<unk>"), pre_tokenizers.WhitespaceSplit()),
    }[kind]
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    if kind == "Unigram":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("\u200b", "")])
    return tokenizer


BARE = "abc  def ghi zéü abc " * 5
LOST = {"gpt2": 10, "Unigram": 10, "words": 15}
"""Characters of ``BARE`` that are lost: é and ü, of words the whole."""


def select(tokenizer: Any, folder: Path, written: str) -> corpora.Windows:
    """Two windows of a text."""
    (folder / "book.txt").write_text(written, encoding="utf-8")
    return corpora.select_windows(CorpusSettings(id=str(folder / "book.txt")), tokenizer, 4, 2, 0)


@pytest.mark.parametrize("kind", LOST)
def test_characters_that_no_token_spells_are_counted(kind: str, tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make_bare(kind), eos_token="<s>")
    known, hidden = "abc def ghi \t abc " * 20, "\u200b" if kind == "Unigram" else ""
    assert select(tokenizer, tmp_path, known + hidden).counts.lost_characters == 0
    chosen = select(tokenizer, tmp_path, BARE + known)
    assert (chosen.counts.lost_characters, chosen.counts.special_tokens) == (LOST[kind], 0)
    said = read_refusal(lambda text: select(tokenizer, tmp_path, text), "abc zéüé " * 9)
    lost = 9 * {"words": 4}.get(kind, 3)
    assert f"The tokenizer has no token for {lost} of the 81 characters of the corpus" in said


def test_rules_of_a_class_do_not_replace_those_of_the_file(tmp_path: Path) -> None:
    """The class that LLaMA's configuration names puts no space before a text that begins with one."""
    source = begin_with(make_sentencepiece(), "<s>")
    folder = save(source, tmp_path / "model", tokenizer_class="LlamaTokenizer", legacy=True)
    found, theirs = read(folder), AutoTokenizer.from_pretrained(folder)
    texts = [piece for piece in draw_texts() if not any(name in piece for name in SPECIAL)]
    assert [find_start(found) + encode(found, piece) for piece in texts] == [
        source.encode(piece).ids for piece in texts
    ]
    assert any(theirs(piece)["input_ids"] != source.encode(piece).ids for piece in texts), "the class would be noticed"
    assert (found.bos_token, found.eos_token) == ("<s>", "</s>")


SOURCES: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "gpt-2": (make_byte_level, {}),
    "llama-bpe": (lambda: make_byte_level(split_by(LLAMA3)), {}),
    "qwen2": (lambda: make_byte_level(split_by(QWEN2), normalizers.NFC()), {}),
    "starcoder": (lambda: make_byte_level(split_digits()), {}),
    "default": (make_sentencepiece, {}),
    "default, no prefix": (lambda: make_sentencepiece(prefix=False), {"tokenizer.ggml.add_space_prefix": False}),
}


def write_both(folder: Path, name: str, **entries: Any) -> tuple[Path, Path]:
    """The same tokenizer as a directory and in a GGUF file."""
    make, others = SOURCES[name]
    source = begin_with(make(), "<s>")
    directory = save(source, folder / "model")
    plain = PreTrainedTokenizerFast(tokenizer_object=source, bos_token="<s>", eos_token="</s>")
    given = {"tokenizer.ggml.pre": name.split(",", maxsplit=1)[0], **others, **entries}
    model = make_model("llama", vocab_size=len(plain))
    return directory, write_gguf(folder / "tiny.gguf", model=model, tokenizer=plain, metadata=given)


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["llama-bpe", *(name for name in SOURCES if name != "llama-bpe")])
def test_both_formats_of_one_tokenizer_give_the_same_tokens_of_200_texts(name: str, tmp_path: Path) -> None:
    directory, file = write_both(tmp_path, name, **{"tokenizer.ggml.add_bos_token": True})
    whole, read_from_file = read(directory), read(file)
    texts = draw_texts()
    assert len(texts) == 200
    expected = [encode(whole, piece) for piece in texts]
    assert [encode(read_from_file, piece) for piece in texts] == expected
    assert begin(file) == begin(directory) == ["<s>"]
    assert (begin(file, "never"), begin(directory, "never")) == ([], [])
    if name != "gpt-2":
        others = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
        differs = [encode(others, piece) for piece in texts] != expected
        assert differs or name == "llama-bpe", "what transformers makes of the file would be noticed"


@pytest.mark.parametrize(
    ("name", "says", "start"),
    [
        ("gpt-2", None, []),
        ("gpt-2", True, ["<s>"]),
        ("llama-bpe", None, ["<s>"]),
        ("default", None, ["<s>"]),
        ("default", False, []),
    ],
)
def test_a_file_that_does_not_say_whether_text_begins_with_bos_follows_llama_cpp(
    name: str, says: bool | None, start: list[str], tmp_path: Path
) -> None:
    entries = {} if says is None else {"tokenizer.ggml.add_bos_token": says}
    _, file = write_both(tmp_path, name, **entries)
    assert [begin(file, bos) for bos in ("auto", "always", "never")] == [start, ["<s>"], []]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"tokenizer.ggml.pre": "mine"}, "has tokenizer.ggml.pre 'mine', whose way to split text is not known"),
        ({"tokenizer.ggml.add_space_prefix": True}, "has add_space_prefix beside a byte-level tokenizer"),
        ({"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.add_bos_token": True}, "a tokenizer that puts BOS"),
    ],
)
def test_ways_to_split_text_that_are_not_known_are_refused(entries: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", metadata=entries)
    assert said in read_refusal(describe, settings(file))


def test_the_longest_run_of_spaces_that_gemma_has_is_one_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of Gemma store such a run as spaces, marked as a whole token; only the tokenizer of this one is Gemma's."""
    monkeypatch.setattr(gguf_models, "check_entries", lambda _: None)
    source = make_sentencepiece(prefix=False)
    runs = [f"{'▁' * length}" for length in range(2, 8)]
    source.add_tokens([AddedToken(run, normalized=True) for run in runs])
    plain = PreTrainedTokenizerFast(tokenizer_object=source, bos_token="<s>", eos_token="</s>")
    names = [name for name, _ in sorted(plain.get_vocab().items(), key=lambda item: item[1])]
    entries = {
        "tokenizer.ggml.tokens": [" " * len(name) if name in runs else name for name in names],
        "tokenizer.ggml.token_type": [4 if name in runs else 3 if name in SPECIAL else 1 for name in names],
        "tokenizer.ggml.scores": [float(-index) for index in range(len(names))],
        "tokenizer.ggml.add_space_prefix": False,
    }
    entries |= {"general.architecture": "gemma2"}
    model = make_model("llama", vocab_size=len(names))
    file = write_gguf(tmp_path / "tiny.gguf", model=model, tokenizer=plain, metadata=entries)
    found = load_tokenizer(GgufModel.open("gemma", file))
    for length, rest in pairwise(range(2, 20)):
        spaces = "x" + " " * length + "x" + " " * rest
        named = [name for name in spell_tokens(found, encode(found, spaces)) if set(name) == {"▁"}]
        widths = [7] * (length // 7) + [length % 7] * (length % 7 > 1) + [1] * (length % 7 == 1)
        assert [len(name) for name in named][: len(widths)] == widths


FALLBACK = PreTrainedTokenizerFast(tokenizer_object=make_sentencepiece())
TOKENIZERS = {"bytes": tiny_tokenizer(), "byte fallback": FALLBACK}


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    return next(decode_sequences(tokenizer, [np.array(ids, np.int32)]))


def spell(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of the bytes of a text, one for each, whatever the tokenizer would merge."""
    if tokenizer is FALLBACK:
        return [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]
    byte_of = {tokenizer.decode([index]): index for index in range(tokenizer.vocab_size)}
    whole = {text: tokenizer(text, add_special_tokens=False)["input_ids"] for text in {*text}}
    return [index for letter in text for index in ([byte_of[letter]] if letter in byte_of else whole[letter])]


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
    texts = decode(tokenizer, [ids[1], *spell(tokenizer, "aüe🙂")])
    assert texts == [BROKEN, "a", "ü", "", "e", "🙂", "", "", ""], "or begins in one"
    assert name_tokens(texts)[1:5] == ["a", "ü", "ü", "e"]


def test_tokens_may_begin_and_end_within_characters() -> None:
    """Merged bytes: two characters of three bytes in tokens of two."""
    letters, _ = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("かな")[0]
    parts = [letters[at : at + 2] for at in (0, 2, 4)]
    vocabulary = {piece: index for index, piece in enumerate([*dict.fromkeys(letters), *parts])}
    backend = Tokenizer(models.BPE(vocabulary, [(part[0], part[1]) for part in parts]))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert decode(tokenizer, [vocabulary[part] for part in parts]) == ["か", "な", ""]
