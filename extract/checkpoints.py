"""Local checkpoints: which files of a directory are read, whether they may be, and their hashes.

Holds ``Checkpoint`` and ``Folder``. What does not belong here: what is in the weights (``extract.tensors``) and loading
a model (``extract.models``). Importing this module loads neither torch nor transformers.

A checkpoint is untrusted. No file is opened that is not a regular file inside the directory, after links have been
followed; links of a snapshot in the cache of the Hugging Face hub may also lead to the ``blobs`` beside the snapshots.
Weights are safetensors files, whichever file names them.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG
from typing import Any, NoReturn, Self

from extract.hub import one_line
from storage.errors import UserError

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
INDEX_SUFFIX = ".safetensors.index.json"

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
"""Suffixes of weights that are never read, because reading them may run code."""

READ = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".codes", ".tokenizer")
"""Suffixes of what transformers reads beside weights: configurations, vocabularies, merges, chat templates."""

VOCABULARIES = (".model", ".tiktoken", ".codes", ".tokenizer")
"""Suffixes of vocabularies; others have names."""

VOCABULARY_NAMES = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "dict.txt", "vocab-src.json")

WITHOUT_VOCABULARY = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
"""Tokenizers of bytes or code points, which need no vocabulary."""

NO_TOKENIZER = "no tokenizer that can be read; write one beside it with tokenizer.save_pretrained"

NAMING = ("_file", "_files")
"""How the names of fields end that name files of a tokenizer."""

UNREAD = ("special_tokens_map_file",)
"""Such fields that say where a tokenizer was once, and that nothing reads."""

TEMPLATES = "additional_chat_templates"

OTHER_LAYOUTS = {
    "adapter_config.json": "has an adapter beside its weights, which would change them; merge it into the model",
    "shard-[0-9]*-model-*.safetensors": "is a distributed checkpoint, which is never read",
}
"""What makes transformers read other files than these, by the files' names."""

JSON_BYTES = 2**26
"""Most bytes of a JSON file that is read here."""

HASHED_AT_ONCE = 4
"""Files hashed at the same time."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with a configuration, weights in safetensors and perhaps a tokenizer; make one with ``open``."""

    files: "Folder"
    config: Mapping[str, Any]
    """What ``config.json`` says."""
    index: str | None
    """The file that names those of the weights; None where there is one file of weights, or none."""
    weights: tuple[str, ...]
    """The files that transformers loads tensors from, relative to the directory, ascending; none of a model whose
    weights are random."""

    @classmethod
    def open(cls, name: str, path: Path, *, trained: bool = True) -> Self:
        """Look at the directory ``path``, which the user calls ``name``; no weights are read.

        Where the model is not ``trained``, files of weights need not be there and do not count.

        Raises
        ------
        UserError
            If there is no such directory, it has no configuration or no weights in safetensors, or it holds what must
            not be opened: files that are not regular, links out of it, an index that names anything but safetensors
            files inside it.
        """
        files = Folder(name, path)
        files.check()
        if CONFIG not in files.names:
            files.refuse(f"has no {CONFIG}; write it with model.save_pretrained")
        config = files.json(CONFIG)
        return cls(files, config, *(_weights(files, config) if trained else (None, ())))

    @property
    def tokenizer(self) -> tuple[str, ...]:
        """The files that a tokenizer may be read from, relative to the directory, ascending."""
        here = [name for name in self.files.names if _is_read(name) and not _of_model(name)]
        return tuple(sorted((*here, *self.files.templates)))

    def check_tokenizer(self) -> None:
        """Refuse a tokenizer that is not there, or whose configuration names files elsewhere on this machine.

        Raises
        ------
        UserError
            In either case.
        """
        said = self.files.json(TOKENIZER) if TOKENIZER in self.tokenizer else {}
        for field, value in said.items():
            named = value if isinstance(value, list) else [value]
            if field.endswith(NAMING) and field not in UNREAD and any(self.files.is_elsewhere(name) for name in named):
                self.files.refuse(f"has a {TOKENIZER} with a file that is not in the directory, {field}: {value!r}")
        if any(name in VOCABULARY_NAMES or _is_vocabulary(name) for name in self.tokenizer):
            return
        if said.get("tokenizer_class") not in WITHOUT_VOCABULARY:
            self.files.refuse(f"has {NO_TOKENIZER}")

    def sha256(self) -> str:
        """SHA-256 over configuration and weights, by name, in order of their names.

        Safetensors files in the directory itself count whether they are loaded or not, but not where the weights are
        random.
        """
        stray = [name for name in self.files.names if name.endswith(".safetensors") and self.weights]
        return self._sha256({CONFIG, *stray, *self.weights})

    def other_sha256(self) -> str:
        """SHA-256 over what else decides the model: the index of the weights and the generation configuration."""
        here = {name for name in self.files.names if _of_model(name) and name != CONFIG}
        if not self.weights:
            here = {name for name in here if not name.endswith(INDEX_SUFFIX)}
        return self._sha256(here | ({self.index} if self.index else set()))

    def tokenizer_sha256(self) -> str:
        """SHA-256 over the files that a tokenizer may be read from, by name, in order of their names."""
        return self._sha256(self.tokenizer)

    def _sha256(self, names: Iterable[str]) -> str:
        """SHA-256 over names and hashes of files."""
        digest, ordered = hashlib.sha256(), sorted(names, key=PurePosixPath)
        with ThreadPoolExecutor(max_workers=HASHED_AT_ONCE) as pool:
            for name, found in zip(ordered, pool.map(self.files.sha256, ordered), strict=True):
                digest.update(f"{name} {found}\n".encode())
        return digest.hexdigest()


class Folder:
    """The directory of a checkpoint, in which nothing is opened that must not be."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def refuse(self, what: str) -> NoReturn:
        """Say what is wrong with the checkpoint."""
        msg = f"The model '{self.name}' {what}"
        raise UserError(msg)

    @cached_property
    def names(self) -> list[str]:
        """What is in the directory itself, ascending; files and directories."""
        with self._readable():
            return sorted(os.listdir(self.path))  # noqa: PTH208 (names, not paths)

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        """Where files may be: in the directory, and for a snapshot of the hub's cache in its blobs."""
        real = self.path.resolve()
        return real, *(above.parent / "blobs" for above in real.parents if above.name == "snapshots")

    def check(self) -> None:
        """Refuse a directory that is missing, or that holds other things than regular files and directories.

        Raises
        ------
        UserError
            In either case, and for a link out of it or a broken link where a file would be read.
        """
        if not _is_folder(self.path):
            msg = f"There is no model directory '{self.name}'; give a directory, a hub id such as gpt2, or 'embedded'"
            raise UserError(msg)
        for name in [*self.names, *self.templates]:
            self._check(name, read=_is_read(name) or name.endswith(".safetensors"))
        for pattern, what in OTHER_LAYOUTS.items():
            if found := next((name for name in self.names if PurePosixPath(name).match(pattern)), None):
                self.refuse(f"{what} ({found}); write it again with model.save_pretrained")

    def _check(self, name: str, *, read: bool) -> None:
        """Refuse an entry that is neither a file nor a directory, or one that is read but is not a file in here."""
        place = self.path / name
        with self._readable(name):
            try:
                mode = place.stat().st_mode
            except (FileNotFoundError, ValueError):
                if not read:  # a broken link that nobody follows
                    return
                self.refuse(f"has no file '{name}', or only a broken link to it; add it")
        if not S_ISREG(mode) and not (S_ISDIR(mode) and not read):
            self.refuse(f"has '{name}', which is not a regular file; replace it by a copy of the file")
        real = place.resolve()
        if read and not any(real.is_relative_to(root) for root in self._roots):
            self.refuse(f"has a link out of it, '{name}'; replace it by a copy of the file")

    @cached_property
    def templates(self) -> list[str]:
        """The chat templates in the folder for more of them, relative to the directory, ascending."""
        if not _is_folder(self.path / TEMPLATES):
            return []
        with self._readable(TEMPLATES):
            return [f"{TEMPLATES}/{path.name}" for path in sorted((self.path / TEMPLATES).glob("*.jinja"))]

    def has_weights(self, name: str) -> bool:
        """Whether there is such a weights file, in the directory or below; it must be one that may be read.

        Raises
        ------
        UserError
            If it is there, but is not a regular file inside the directory.
        """
        if not os.path.lexists(self.path / name):
            return False
        self._check(name, read=True)
        return True

    def is_elsewhere(self, name: object) -> bool:
        """Whether a file of this name is on this machine, but not in the directory itself."""
        if not isinstance(name, str) or name in self.names:
            return False
        return os.path.lexists(self.path / name) or os.path.lexists(name)

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file that holds an object.

        Raises
        ------
        UserError
            If it does not, or is larger than ``JSON_BYTES``.
        """
        with self._readable(name):
            text = (self.path / name).read_bytes() if (self.path / name).stat().st_size <= JSON_BYTES else None
        if text is None:
            self.refuse_file(name, f"it is larger than {JSON_BYTES >> 20} MiB")
        try:
            found = json.loads(text.decode())
            if b"\\u" in text:
                json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair has no bytes
        except (ValueError, RecursionError) as error:
            self.refuse_file(name, one_line(error))
        if not isinstance(found, dict):
            self.refuse_file(name, "it holds no JSON object")
        return found

    def refuse_file(self, name: str, why: str) -> NoReturn:
        """Say what is wrong with one file."""
        msg = f"The {name} of the model '{self.name}' is not valid: {why}"
        raise UserError(msg)

    def sha256(self, name: str) -> str:
        """SHA-256 of a file that has been checked."""
        with self._readable(name), (self.path / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _readable(self, name: str | None = None) -> Iterator[None]:
        """Raise what the system objects to as a ``UserError``."""
        try:
            yield
        except OSError as error:
            what = f"has '{name}', which cannot be read" if name else "cannot be read"
            self.refuse(f"{what} ({error.strerror}); check its permissions")


def first_weights(files: Folder, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Where transformers looks for weights first, in this order: weights files or indexes of them.

    Raises
    ------
    UserError
        If the configuration names anything but a safetensors file or an index of some, inside the directory.
    """
    if (named := config.get("transformers_weights")) is None:
        return WEIGHTS, INDEX
    return (_inside(files, named, f"{CONFIG} (transformers_weights)", (".safetensors", INDEX_SUFFIX)),)


def shards(files: Folder, index: str) -> tuple[str, ...]:
    """The weights files that an index names, ascending; they need not be there.

    Raises
    ------
    UserError
        If it is not an index, or names anything but safetensors files inside the directory.
    """
    named = files.json(index).get("weight_map")
    if not isinstance(named, dict) or not named:
        files.refuse(f"has an {index} without a 'weight_map' of tensors; write it with model.save_pretrained")
    names = {name if isinstance(name, str) else repr(name) for name in named.values()}
    return tuple(sorted(_inside(files, name, index, (".safetensors",)) for name in names))


def _inside(files: Folder, name: object, source: str, suffixes: tuple[str, ...]) -> str:
    """The name of a file that ``source`` names, if it has one of the suffixes and stays inside the directory."""
    if not isinstance(name, str) or not name.endswith(suffixes) or not name.isprintable():
        files.refuse(f"has a {source} that names the weights {name!r}; only safetensors files are read")
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        files.refuse(f"has a {source} that names the weights {name!r}, which are not inside the directory")
    return name


def _weights(files: Folder, config: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The index, if there is one, and the weights files that transformers loads, all of which are there."""
    candidates = first_weights(files, config)
    found = next((name for name in candidates if files.has_weights(name)), None)
    if found is None:
        _refuse_without_weights(files, candidates)
    index = found if found.endswith(INDEX_SUFFIX) else None
    names = shards(files, index) if index else (found,)
    if lacking := [name for name in names if not files.has_weights(name)]:
        files.refuse(f"lacks the weights file '{lacking[0]}', which its {found} names; copy it there")
    return index, names


def _refuse_without_weights(files: Folder, candidates: Sequence[str]) -> NoReturn:
    """Say that there is none of the weights files that are looked for."""
    pickled = [name for name in files.names if name.endswith(PICKLED)]
    found = f"pickled weights only ({pickled[0]}), which may run code and are never read" if pickled else "no weights"
    files.refuse(f"has {found}; write safetensors with model.save_pretrained ({' or '.join(candidates)})")


def _is_read(name: str) -> bool:
    """Whether transformers may read a file of this name beside weights; more may be than are."""
    return name.endswith(READ) or name.startswith("tokenizer.model")


def _is_vocabulary(name: str) -> bool:
    """Whether a file of this name holds a vocabulary, by its suffix."""
    return name.endswith(VOCABULARIES) or name.startswith("tokenizer.model")


def _of_model(name: str) -> bool:
    """Whether a file belongs to the model, and not to its tokenizer."""
    return name in {CONFIG, "generation_config.json"} or name.endswith(INDEX_SUFFIX)


def _is_folder(path: Path) -> bool:
    """Whether a path leads to a directory; one that cannot be looked at does not."""
    try:
        return path.is_dir()
    except OSError:
        return False
