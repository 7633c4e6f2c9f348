"""GGUF files as transformers reads them: all weights are dequantised. ``extract.gguf_models`` checks a file first."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from copy import deepcopy
from functools import cache, lru_cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import transformers
from gguf.constants import MODEL_ARCH_NAMES
from numpy.typing import NDArray
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.import_utils import is_kernels_available

from extract.gguf_models import GgufModel
from storage.errors import UserError


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


class _Reader(gguf.GGUFReader):
    """As its base, which takes the file apart in some hundred thousand slices, but of an ordinary array.

    A slice of ``numpy.memmap`` takes several times as long.
    """

    @property  # type: ignore[override]
    def data(self) -> NDArray[Any]:
        """The bytes of the file, mapped to memory."""
        return self._data

    @data.setter
    def data(self, mapped: NDArray[Any]) -> None:
        self._data = np.asarray(mapped)


@contextmanager
def parse_once() -> Iterator[None]:
    """Within it, transformers parses the entries of a file once, not again for its tokenizer and for its weights.

    They stay in memory until it ends, up to some 1,400 bytes for each element of an array. The names of tensors are
    listed once, too, not again for each module of the model.
    """
    before: Any = gguf.GGUFReader
    list_names, parsed = gguf.get_tensor_name_map, {}
    make = _Reader if isinstance(before, type) else before  # a function inside another such context

    def read(path: str) -> gguf.GGUFReader:
        place = Path(path).resolve()  # behind the links of ``open_alone``
        if place not in parsed:
            parsed[place] = make(path)
        return parsed[place]

    gguf.GGUFReader = read  # type: ignore[misc, assignment]
    gguf.get_tensor_name_map = cache(list_names)
    try:
        yield
    finally:
        gguf.GGUFReader = before  # type: ignore[misc]
        gguf.get_tensor_name_map = list_names


def load_config(model: GgufModel) -> PreTrainedConfig:
    """The configuration of a file, which is read once as long as no other file is; raises what transformers raises."""
    return deepcopy(_load_config(model.path, model.identify()))


def load_tokenizer(model: GgufModel) -> PreTrainedTokenizerBase:
    """The tokenizer of a file, read once as ``load_config``, without a BOS with which the model's text does not begin.

    Raises what transformers raises.
    """
    tokenizer = deepcopy(_load_tokenizer(model.path, model.identify()))
    if model.adds_bos is False:
        tokenizer.bos_token = None
    return tokenizer


@lru_cache(maxsize=1)
def _load_config(path: Path, _identity: tuple[int, ...]) -> PreTrainedConfig:
    with open_alone(path) as where:
        config: PreTrainedConfig = AutoConfig.from_pretrained(**where)
    return config


@lru_cache(maxsize=1)
def _load_tokenizer(path: Path, _identity: tuple[int, ...]) -> PreTrainedTokenizerBase:
    with open_alone(path) as where:
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
