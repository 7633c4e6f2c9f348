"""Local checkpoints: which files of a directory are read, whether they may be read, and their hashes.

The content of the weights is examined in ``extract.models.checks``. Importing this module loads neither torch nor
transformers.

A checkpoint is untrusted. Only regular files inside the directory are opened, after links have been followed; links of
a snapshot in the cache of the Hugging Face hub may also lead to the ``blobs`` next to the snapshots. Weights must be
safetensors files, whichever file names them.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG
from typing import Any, NoReturn, Self

from extract.hub import hash_file, summarise_error
from storage.errors import UserError

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
INDEX_SUFFIX = ".safetensors.index.json"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
"""Suffixes of weights that are never read, because reading them may run code."""

READ = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".codes", ".tokenizer")
"""Suffixes of files other than weights that transformers reads: configurations, vocabularies, merges, templates."""

VOCABULARIES = (".model", ".tiktoken", ".codes", ".tokenizer")
"""Suffixes of vocabularies; other vocabularies are recognised by their names."""

VOCABULARY_NAMES = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "dict.txt", "vocab-src.json")

WITHOUT_VOCABULARY = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
"""Tokenizers of bytes or code points, which need no vocabulary."""

NO_TOKENIZER = "no tokenizer that can be read; save one in its directory with tokenizer.save_pretrained"

NAMING = ("_file", "_files")
"""Suffixes of the names of fields that name files of a tokenizer."""

UNREAD = ("special_tokens_map_file",)
"""Such fields that record a former location of a tokenizer and are never read."""

TEMPLATES = "additional_chat_templates"

OTHER_LAYOUTS = {
    "adapter_config.json": "has an adapter next to its weights, which would change them; merge it into the model",
    "shard-[0-9]*-model-*.safetensors": "is a distributed checkpoint, which is never read",
}
"""By name, files that make transformers read other files than the ones checked here."""

JSON_BYTES = 2**26
"""Largest size in bytes of a JSON file that is read."""

OTHER_FILES = "files_sha256"
"""Key in the provenance of the hash of files of a model or tokenizer that its ``sha256`` does not cover."""

HASHED_AT_ONCE = 4
"""Number of files hashed at the same time."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with a configuration, weights in safetensors and perhaps a tokenizer; construct it with ``open``."""

    files: "Folder"
    config: Mapping[str, Any]
    """The content of ``config.json``."""
    index: str | None
    """The index that names the weights files; None if there is only one weights file, or none."""
    weights: tuple[str, ...]
    """The files that transformers loads tensors from, relative to the directory, ascending; empty for a model whose
    weights are random."""

    @classmethod
    def open(cls, name: str, path: Path, *, trained: bool = True) -> Self:
        """Open the directory ``path``, which the user calls ``name``; no weights are read.

        If the model is not ``trained``, weights files need not exist and are ignored.
        """
        files = Folder(name, path)
        files.check()
        if CONFIG not in files.names:
            gguf = next((name for name in files.names if name.endswith(".gguf")), None)
            remedy = f"name its GGUF file with --gguf {gguf}" if gguf else "write it with model.save_pretrained"
            files.refuse(f"has no {CONFIG}; {remedy}")
        config = files.read_json(CONFIG)
        return cls(files, config, *(_find_weights(files, config) if trained else (None, ())))

    @property
    def tokenizer(self) -> tuple[str, ...]:
        """The files that a tokenizer may be read from, relative to the directory, ascending."""
        here = [name for name in self.files.names if _is_read(name) and not _is_of_model(name)]
        return tuple(sorted((*here, *self.files.templates)))

    def check_tokenizer(self) -> None:
        """Refuse a tokenizer (``UserError``) that is missing, or whose configuration names files elsewhere."""
        said = self.files.read_json(TOKENIZER) if TOKENIZER in self.tokenizer else {}
        for field, value in said.items():
            named = value if isinstance(value, list) else [value]
            if field.endswith(NAMING) and field not in UNREAD and any(self.files.is_elsewhere(name) for name in named):
                self.files.refuse(f"has a {TOKENIZER} with a file that is not in the directory, {field}: {value!r}")
        vocabularies = (name.endswith(VOCABULARIES) or name.startswith("tokenizer.model") for name in self.tokenizer)
        if any(vocabularies) or {*VOCABULARY_NAMES}.intersection(self.tokenizer):
            return
        if said.get("tokenizer_class") not in WITHOUT_VOCABULARY:
            self.files.refuse(f"has {NO_TOKENIZER}")

    @property
    def name(self) -> str:
        """The model as the user wrote it."""
        return self.files.name

    def describe_files(self, _dtype: str = "") -> dict[str, dict[str, str]]:
        """The part of the provenance on model and tokenizer that depends only on the files, whatever the type.

        ``model``: id, SHA-256 of configuration and weights (all safetensors files in the directory itself, loaded or
        not; none if the weights are random), and of the other files that determine the model, the weights index and the
        generation configuration; ``tokenizer``: SHA-256 of the files that it may be read from.
        """
        stray = [name for name in self.files.names if name.endswith(".safetensors") and self.weights]
        others = [name for name in self.files.names if _is_of_model(name) and name != CONFIG]
        others = [name for name in others if self.weights or not name.endswith(INDEX_SUFFIX)]
        model = {"id": self.name, "sha256": self._hash_files({CONFIG, *stray, *self.weights})}
        return {
            "model": model | {OTHER_FILES: self._hash_files({*others, *filter(None, [self.index])})},
            "tokenizer": {OTHER_FILES: self._hash_files(self.tokenizer)},
        }

    def _hash_files(self, names: Iterable[str]) -> str:
        """SHA-256 over files by name, in order of their names."""
        digest, ordered = hashlib.sha256(), sorted(names, key=PurePosixPath)
        with ThreadPoolExecutor(max_workers=HASHED_AT_ONCE) as pool:
            for name, file_digest in zip(ordered, pool.map(self.files.hash_file, ordered), strict=True):
                digest.update(f"{name} {file_digest}\n".encode())
        return digest.hexdigest()


class Folder:
    """The directory of a checkpoint, in which only permitted files are opened."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def refuse(self, what: str) -> NoReturn:
        """Raise the error ``what`` about the checkpoint."""
        raise UserError(f"The model '{self.name}' {what}")

    @cached_property
    def names(self) -> list[str]:
        """Names of the files and directories in the directory itself, ascending."""
        with self._translate_errors():
            return sorted(os.listdir(self.path))  # noqa: PTH208 (names, not paths)

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        """Where files may be: in the directory, and, for a snapshot of the hub's cache, in its blobs."""
        real = self.path.resolve()
        return real, *(above.parent / "blobs" for above in real.parents if above.name == "snapshots")

    def check(self) -> None:
        """Refuse a directory that is missing, or that contains anything but regular files and directories."""
        self.check_place()
        for name in [*self.names, *self.templates]:
            self._check(name, read=_is_read(name) or name.endswith(".safetensors"))
        for pattern, what in OTHER_LAYOUTS.items():
            if match := next((name for name in self.names if PurePosixPath(name).match(pattern)), None):
                self.refuse(f"{what} ({match}); write it again with model.save_pretrained")

    def check_place(self) -> None:
        """Refuse a directory (``UserError``) that is missing."""
        if not _is_folder(self.path):
            raise UserError(
                f"There is no model directory '{self.name}'; give a directory, a hub id such as gpt2, a .gguf file, "
                "or 'embedded'"
            )

    def _check(self, name: str, *, read: bool) -> None:
        """Refuse an entry that is neither a file nor a directory, or one that is read but is not a file in here."""
        place = self.path / name
        with self._translate_errors(name):
            try:
                mode = place.stat().st_mode
            except (FileNotFoundError, ValueError):
                if not read:  # a broken link that is not followed
                    return
                self.refuse(f"has no file '{name}', or only a broken link to it; add it")
        if not S_ISREG(mode) and not (S_ISDIR(mode) and not read):
            self.refuse(f"has '{name}', which is not a regular file; replace it with a copy of the file")
        real = place.resolve()
        if read and not any(real.is_relative_to(root) for root in self._roots):
            self.refuse(f"has a link out of its directory, '{name}'; replace it with a copy of the file")

    @cached_property
    def templates(self) -> list[str]:
        """The additional chat templates, relative to the directory, ascending."""
        if not _is_folder(self.path / TEMPLATES):
            return []
        with self._translate_errors(TEMPLATES):
            return [f"{TEMPLATES}/{path.name}" for path in sorted((self.path / TEMPLATES).glob("*.jinja"))]

    def has_weights(self, name: str) -> bool:
        """Whether there is such a weights file, in the directory or below; it must be readable."""
        if not os.path.lexists(self.path / name):
            return False
        self._check(name, read=True)
        return True

    def is_elsewhere(self, name: object) -> bool:
        """Whether a file of this name exists on this machine, but not in the directory itself."""
        named = isinstance(name, str) and name not in self.names
        return named and (os.path.lexists(self.path / str(name)) or os.path.lexists(str(name)))

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file that contains an object."""
        with self._translate_errors(name):
            text = (self.path / name).read_bytes() if (self.path / name).stat().st_size <= JSON_BYTES else None
        if text is None:
            self.refuse_file(name, f"it is larger than {JSON_BYTES >> 20} MiB")
        try:
            document = json.loads(text.decode())
            if b"\\u" in text:
                json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair cannot be encoded
        except (ValueError, RecursionError) as error:
            self.refuse_file(name, summarise_error(error))
        if not isinstance(document, dict):
            self.refuse_file(name, "it does not contain a JSON object")
        return document

    def refuse_file(self, name: str, why: str) -> NoReturn:
        """Raise the error ``why`` about one file."""
        raise UserError(f"The {name} of the model '{self.name}' is not valid: {why}")

    def hash_file(self, name: str) -> str:
        """SHA-256 of a file that has been checked."""
        with self._translate_errors(name):
            return hash_file(self.path / name)

    @contextmanager
    def _translate_errors(self, name: str | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"has '{name}', which cannot be read" if name else "cannot be read"
            self.refuse(f"{what} ({error.strerror}); check its permissions")


def list_first_weights(files: Folder, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names that transformers tries first for weights, in this order: weights files or their indexes."""
    if (named := config.get("transformers_weights")) is None:
        return WEIGHTS, INDEX
    return (_check_inside(files, named, f"{CONFIG} (transformers_weights)", (".safetensors", INDEX_SUFFIX)),)


def list_shards(files: Folder, index: str) -> tuple[str, ...]:
    """The weights files that an index names, ascending; they need not exist."""
    named = files.read_json(index).get("weight_map")
    if not isinstance(named, dict) or not named:
        files.refuse(f"has an {index} without a 'weight_map' of tensors; write it with model.save_pretrained")
    names = {name if isinstance(name, str) else repr(name) for name in named.values()}
    return tuple(sorted(_check_inside(files, name, index, (".safetensors",)) for name in names))


def _check_inside(files: Folder, name: object, source: str, suffixes: tuple[str, ...]) -> str:
    """The file that ``source`` names, if it has one of the suffixes and is inside the directory."""
    if not isinstance(name, str) or not name.endswith(suffixes) or not name.isprintable():
        files.refuse(f"has a {source} that names the weights {name!r}; only safetensors files are read")
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        files.refuse(f"has a {source} that names the weights {name!r}, which are not inside the directory")
    return name


def _find_weights(files: Folder, config: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The index, if there is one, and the weights files that transformers loads, all of which exist."""
    candidates = list_first_weights(files, config)
    weights_name = next((name for name in candidates if files.has_weights(name)), None)
    if weights_name is None:
        pickled = [name for name in files.names if name.endswith(PICKLED)]
        why = f"only pickled weights ({pickled[0]}), which may run code and are never read" if pickled else "no weights"
        files.refuse(f"has {why}; write safetensors with model.save_pretrained ({' or '.join(candidates)})")
    index = weights_name if weights_name.endswith(INDEX_SUFFIX) else None
    names = list_shards(files, index) if index else (weights_name,)
    if lacking := [name for name in names if not files.has_weights(name)]:
        files.refuse(f"lacks the weights file '{lacking[0]}', which its {weights_name} names; copy it to the directory")
    if stray := [name for name in files.names if SHARD.fullmatch(name) and name not in names]:
        files.refuse(f"has a part of weights that is not read, '{stray[0]}', beside {weights_name}; remove one of them")
    return index, names


def _is_read(name: str) -> bool:
    """Whether transformers may read a file of this name that is not a weights file; not all such files are read."""
    return name.endswith(READ) or name.startswith("tokenizer.model")


def _is_of_model(name: str) -> bool:
    return name in {CONFIG, "generation_config.json"} or name.endswith(INDEX_SUFFIX)


def _is_folder(path: Path) -> bool:
    """Whether a path leads to a directory; False if it cannot be accessed."""
    try:
        return path.is_dir()
    except OSError:
        return False
