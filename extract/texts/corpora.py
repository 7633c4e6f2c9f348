"""Corpora: equal-length windows of tokens chosen from the documents of a text.

Everything is read as a stream. Memory at any time: what the docstrings of the two readers state, one document, the
tokens of ``PIECE`` characters of it, the ``SHUFFLED`` windows of the shuffle buffer, 4 * SHUFFLED * context_length
bytes, and the last windows that were chosen.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from extract.embedded import list_topics
from extract.identity import find_prose, hash_corpus, is_local_corpus
from extract.settings import EMBEDDED, PROSE, REPEATED, Bos, CorpusSettings
from extract.texts import readers, streams
from extract.texts.decoding import encode_text
from extract.texts.tokenization import find_start, find_unknown, list_special_tokens, make_counter, spell_tokens
from storage.errors import UserError

SHUFFLED = 1024
"""Windows in the shuffle buffer."""

PIECE = 2 * readers.BLOCK
"""Most characters of a document that are tokenised at a time, which takes some 160 bytes of memory for each; no block
of a ``.txt`` file has more."""

CONTEXT = 128
"""Characters before and after the end of such a piece that decide its tokens there."""

MOST_LOST = 0.1
"""Largest share of the characters of a text for which a tokenizer may have no token."""


@dataclass
class Counts:
    """What has been read of a corpus so far."""

    documents_read: int = 0
    documents_skipped: int = 0
    """Documents read that were too short for one window."""
    special_tokens: int = 0
    """Special tokens that the tokenizer made of their text."""
    lost_characters: int = 0
    """Characters of their text that no token spells; see ``tokenization.make_counter``."""
    characters: int = 0
    tokens: int = 0
    windows: int = 0


@dataclass(frozen=True)
class Windows:
    """Equal-length token windows and how they were obtained."""

    tokens: NDArray[np.int32]
    """Token ids, int32 (sequences, context_length); each window begins with those of ``tokenization.find_start``."""
    sha256: str
    """Hash of the whole corpus; for a hub dataset and for random tokens, of ``tokens`` (little-endian)."""
    revision: str | None
    """Commit of a hub dataset that was read; None for any other corpus."""
    counts: Counts


def select_windows(
    corpus: CorpusSettings,
    tokenizer: PreTrainedTokenizerBase,
    context_length: int,
    sequences: int,
    seed: int,
    bos: Bos = "auto",
) -> Windows:
    """Choose ``sequences`` windows of ``context_length`` tokens, without padding; the same for the same ``seed``.

    A document yields its consecutive windows, which do not overlap, each after the tokens of
    ``tokenization.find_start``; documents shorter than one window are skipped and counted. With ``corpus.pack``,
    documents are joined end to end, separated by EOS if there is one. The choice is made in a shuffle buffer of
    ``SHUFFLED`` windows, so a large corpus is read only as far as needed. The last choice from a corpus that is hashed
    as a whole is kept for the next; callers must not change it.
    """
    checksum = hash_corpus(corpus)
    select = _select_windows_once if checksum else _select_windows
    return select(corpus, checksum, tokenizer, context_length, sequences, seed, bos)


def _select_windows(
    corpus: CorpusSettings,
    checksum: str | None,
    tokenizer: PreTrainedTokenizerBase,
    context_length: int,
    sequences: int,
    seed: int,
    bos: Bos,
) -> Windows:
    """As ``select_windows``, with the hash of the corpus, or None if it is not hashed as a whole."""
    counts = Counts()
    stream, revision = _shuffle_windows(corpus, tokenizer, context_length, seed, bos, counts)
    chosen = list(islice(stream, sequences))
    if counts.lost_characters > MOST_LOST * counts.characters:
        raise UserError(
            f"The tokenizer has no token for {counts.lost_characters} of the {counts.characters} characters of the "
            f"corpus '{corpus.id}' that were read; choose a corpus in its script, or a model whose tokenizer knows them"
        )
    if len(chosen) < sequences:
        remedies = ["lower sequences or context_length", "add more text"]
        if skipped := counts.documents_skipped:
            remedies.insert(1, f"set pack to join documents that are too short, of which there are {skipped}")
        raise UserError(
            f"The corpus '{corpus.id}' has too little text: {counts.windows} of {sequences} requested sequences of "
            f"{context_length} tokens (documents: {counts.documents_read}, tokens: {counts.tokens}); "
            f"{', or '.join(remedies)}"
        )
    tokens = np.stack(chosen)
    if checksum is None:
        checksum = hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()
    return Windows(tokens, checksum, revision, counts)


_select_windows_once = lru_cache(maxsize=1)(_select_windows)
"""For the study after its twin."""


def select_held_out(
    corpus: CorpusSettings,
    tokenizer: PreTrainedTokenizerBase,
    used: NDArray[np.int32],
    seed: int,
    count: int,
    bos: Bos = "auto",
) -> NDArray[np.int32]:
    """``count`` windows after those that a study has ``used``, int32 (count, context_length); the same for one seed.

    Windows that are equal to one of the study's, which repeated text produces, are skipped. A hub dataset is that at
    the commit that the study has read.
    """
    counts, known = Counts(), {row.tobytes() for row in used}
    stream, _ = _shuffle_windows(corpus, tokenizer, used.shape[1], seed, bos, counts)
    if not np.array_equal(list(islice(stream, len(used))), used):
        raise UserError(
            f"The corpus '{corpus.id}' or the tokenizer has changed since the study was extracted; "
            "extract it again with --fresh"
        )
    windows = list(islice((window for window in stream if window.tobytes() not in known), count))
    if len(windows) < count:
        raise UserError(
            f"The corpus '{corpus.id}' has {len(windows)} of {count} requested held-out sequences of {used.shape[1]} "
            f"tokens after the {len(used)} of the study; request fewer, lower sequences, or add more text"
        )
    return np.stack(windows) if windows else used[:0]


def open_documents(corpus: CorpusSettings, seed: int) -> tuple[Iterator[str], str | None]:
    """The documents of a corpus and, for a hub dataset, its commit.

    Documents of a hub dataset are shuffled by ``seed``; all others keep the order in which they are stored.
    """
    if corpus.id == EMBEDDED:
        return iter([text for _, text in list_topics("held_out")]), None
    if corpus.id == PROSE:
        return readers.read_documents(find_prose()), None
    if is_local_corpus(corpus):
        return readers.read_documents(corpus), None
    return streams.open_stream(corpus, seed)


def _shuffle_windows(
    corpus: CorpusSettings,
    tokenizer: PreTrainedTokenizerBase,
    context_length: int,
    seed: int,
    bos: Bos,
    counts: Counts,
) -> tuple[Iterator[NDArray[np.int32]], str | None]:
    """All windows of a corpus in the order decided by ``seed``, and the commit of a hub dataset."""
    start = find_start(tokenizer, bos)
    if len(start) >= context_length:
        raise UserError(
            f"Every sequence begins with {' '.join(spell_tokens(tokenizer, start))}, which leaves no room for text in "
            f"{context_length} tokens; raise context_length"
        )
    if corpus.id == REPEATED:
        return _repeat_tokens(tokenizer, start, context_length, seed), None
    texts, revision = open_documents(corpus, seed)
    stream = _cut_windows(texts, tokenizer, start, context_length, pack=corpus.pack, counts=counts)
    return streams.shuffle_buffered(stream, SHUFFLED, seed), revision


def _repeat_tokens(
    tokenizer: PreTrainedTokenizerBase, start: Sequence[int], context_length: int, seed: int
) -> Iterator[NDArray[np.int32]]:
    """Endless windows (context_length,) of uniform random tokens without special ones, the first half twice.

    The probe for duplicates and induction: what every sequence begins with, then half of the remaining tokens, then the
    same again. If their number is odd, the first half has one token more, which is not repeated.
    """
    ordinary, generator = (
        set(tokenizer.get_vocab().values()) - list_special_tokens(tokenizer),
        np.random.default_rng(seed),
    )
    ids = np.array(sorted(ordinary), np.int32)
    while True:
        half = generator.choice(ids, -(-(context_length - len(start)) // 2))
        yield np.concatenate((np.array(start, np.int32), half, half))[:context_length]


def _cut_windows(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    start: list[int],
    context_length: int,
    *,
    pack: bool,
    counts: Counts,
) -> Iterator[NDArray[np.int32]]:
    """The windows (context_length,) of the documents in order; ``counts`` is updated."""
    end = [] if tokenizer.eos_token_id is None or not pack else [tokenizer.eos_token_id]
    size, special = context_length - len(start), list_special_tokens(tokenizer) - {find_unknown(tokenizer)}
    count_lost = make_counter(tokenizer)
    rest: list[int] = []
    for text in texts:
        counts.documents_read += 1
        before = counts.windows
        for piece, ids in chain(_encode_pieces(tokenizer, text), [("", end)]):
            counts.tokens += len(ids)
            if piece:
                counts.special_tokens += sum(index in special for index in ids)
                counts.characters += len(piece)
                counts.lost_characters += count_lost(piece, ids)
            rest = rest + ids
            whole = len(rest) - len(rest) % size
            for first in range(0, whole, size):
                counts.windows += 1
                yield np.array(start + rest[first : first + size], dtype=np.int32)
            rest = rest[whole:]
        if not pack:
            counts.documents_skipped += counts.windows == before
            rest = []


def _encode_pieces(tokenizer: PreTrainedTokenizerBase, text: str) -> Iterator[tuple[str, list[int]]]:
    """A text in pieces of at most ``PIECE`` characters with their tokens, which together are those of the whole text.

    A piece is read after the characters before it, whose tokens are left out: alone, its first word would be one at the
    start of a text, to which many tokenizers add a space.
    """
    start = 0
    while start < len(text):
        end = _find_cut(tokenizer, text, start + PIECE)
        before = text[max(0, start - CONTEXT) : start]
        known = len(encode_text(tokenizer, before)) if before else 0
        yield text[start:end], encode_text(tokenizer, before + text[start:end])[known:]
        start = end


def _find_cut(tokenizer: PreTrainedTokenizerBase, text: str, last: int) -> int:
    """The last place up to ``last``, before a space if possible, where what follows changes no token before it."""
    if last >= len(text):
        return len(text)
    for cut in sorted(range(last, last - CONTEXT, -1), key=lambda place: not text[place].isspace()):
        known = encode_text(tokenizer, text[cut - CONTEXT : cut])
        if encode_text(tokenizer, text[cut - CONTEXT : cut + CONTEXT])[: len(known)] == known:
            return cut
    return last
