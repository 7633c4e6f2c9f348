"""GGUF files as transformers reads them: all weights are dequantised. ``extract.gguf_models`` checks a file first."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from io import StringIO
from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import gguf
import numpy as np
import transformers
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.import_utils import is_kernels_available

from extract.gguf_header import Tensor, read_header
from extract.gguf_models import TOKENIZER, TOKENS, GgufModel
from extract.gguf_tokenizers import follow_file
from extract.unchanged import keep_while_unchanged
from storage.errors import UserError

ROW = 2**14
"""Most elements that are dequantised as one row."""


@contextmanager
def open_alone(path: Path) -> Iterator[dict[str, Any]]:
    """The arguments by which ``from_pretrained`` reads a file, through a link in a directory that holds nothing else.

    Otherwise transformers would also read configurations next to the file, and prefer a file of the same name in the
    working directory.
    """
    with TemporaryDirectory(prefix="gguf-") as folder:
        link = Path(folder, "model.gguf")
        link.symlink_to(path.resolve())
        yield {"pretrained_model_name_or_path": folder, "gguf_file": str(link), "trust_remote_code": False}


class _Field(NamedTuple):
    """A metadata entry in the form of ``gguf.ReaderField``."""

    parts: list[Any]
    """Strings as bytes, each number as a list."""
    data: range
    """Indices of the parts."""
    types: list[GGUFValueType]

    @classmethod
    def make(cls, value: Any) -> Self:
        """The field of a value of ``Header.metadata``."""
        values = value if isinstance(value, list) else [value]
        parts = [element.encode() if isinstance(element, str) else [element] for element in values]
        types = [GGUFValueType.get_type(element) for element in values[:1]]
        return cls(parts, range(len(parts)), [GGUFValueType.ARRAY, *types] if values is value else types)


@dataclass(frozen=True)
class _DequantisedTensor:
    """A tensor in the form of ``gguf.ReaderTensor``; of type F32, whichever type it is stored in."""

    name: str
    header: Tensor
    path: Path
    start: int
    """Place in bytes of the tensor in the file."""
    tensor_type: GGMLQuantizationType = GGMLQuantizationType.F32

    @property
    def data(self) -> NDArray[np.float32]:
        """The weights; ``gguf`` dequantises 16 rows at a time, so that rows of ``ROW`` elements take half as long."""
        kind = GGMLQuantizationType[self.header.type]
        elements, size = GGML_QUANT_SIZES[kind]
        stored = np.fromfile(self.path, np.uint8, self.header.size, offset=self.start)  # not mapped: if the file is cut
        if len(stored) < self.header.size:  # in the meantime, a map ends the process
            msg = f"the file was cut while it was read, inside {self.name}"
            raise OSError(msg)
        blocks = gcd(len(stored) // size, ROW // elements)
        return gguf.dequantize(stored.reshape(-1, blocks * size), kind).reshape(self.header.shape)


class _CheckedReader:
    """What transformers reads of ``gguf.GGUFReader``, from the header that was checked when the model was opened.

    Of the tokenizer's arrays, configuration and weights depend on the number of tokens alone.
    """

    def __init__(self, path: str) -> None:
        header = read_header(Path(path).resolve())  # behind the links of ``open_alone``
        every = header.metadata.items()
        used = {name: value for name, value in every if not (name.startswith(TOKENIZER) and isinstance(value, list))}
        used[TOKENS] = [0] * len(header.metadata[TOKENS])
        self.fields = {name: _Field.make(value) for name, value in used.items()}
        self.tensors = [
            _DequantisedTensor(name, tensor, Path(path), header.start + tensor.offset)
            for name, tensor in header.tensors.items()
        ]


@contextmanager
def read_quickly() -> Iterator[None]:
    """Within it, transformers gets entries and weights of a file by ``_CheckedReader``, in less time.

    The names of tensors are listed once, not again for each module of the model.
    """
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = _CheckedReader, cache(before[1])  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = before  # type: ignore[misc]


def load_config(model: GgufModel) -> PreTrainedConfig:
    """The configuration of a file, which is read once as long as no other file is; raises what transformers raises."""
    return deepcopy(_load_config(model.path))


def load_tokenizer(model: GgufModel) -> PreTrainedTokenizerBase:
    """The tokenizer of a file, read once as ``load_config``.

    Callers get the same object, since copies take long, and must not change it. Raises what transformers and
    ``gguf_tokenizers.follow_file`` raise.
    """
    return follow_file(_load_tokenizer(model.path), model)


@keep_while_unchanged(most=1)
def _load_config(path: Path) -> PreTrainedConfig:
    with open_alone(path) as where, read_quickly():
        config: PreTrainedConfig = AutoConfig.from_pretrained(**where)
    return config


@keep_while_unchanged(most=1)
def _load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    with open_alone(path) as where, read_quickly():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**where)
    return tokenizer


@contextmanager
def dequantise() -> Iterator[dict[str, Any]]:
    """Further arguments for loading weights: all are dequantised.

    Where standard error is not a terminal, the progress bar of transformers, which cannot be disabled, is discarded.
    """
    with ExitStack() as stack:
        if not sys.stderr.isatty():
            stack.enter_context(redirect_stderr(StringIO()))
        yield {"quantization_config": transformers.GgufConfig(dequantize=True)}


def check_architecture(model: GgufModel) -> None:
    """Refuse an architecture (``UserError``) that transformers does not read from GGUF, or by code from the hub.

    The message lists those that it reads.
    """
    if model.architecture not in (known := list_architectures()):
        msg = (
            f"The model '{model.name}' has the architecture {model.architecture[:60]!a}, which transformers "
            f"{transformers.__version__} does not read from GGUF files; it reads {', '.join(known)}"
        )
        raise UserError(msg)

    if model.architecture in GGUF_CONFIG_ARCHS and is_kernels_available():
        msg = (
            f"The model '{model.name}' has the architecture '{model.architecture}', for which transformers fetches "
            "kernels from the hub, because the package kernels is installed; uninstall it: pip uninstall kernels"
        )
        raise UserError(msg)


def list_architectures() -> list[str]:
    """Names in GGUF of the causal language models that transformers reads from GGUF files."""
    causal = {name.removesuffix("_text") for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    read = {_simplify(name) for name in causal.intersection(GGUF_SUPPORTED_ARCHITECTURES)}
    return sorted(name for name in MODEL_ARCH_NAMES.values() if _simplify(name) in read or name in GGUF_CONFIG_ARCHS)


def _simplify(name: str) -> str:
    """An architecture's name without the separators in which GGUF and transformers differ."""
    return name.replace("-", "").replace("_", "")
