"""GGUF files as transformers reads them: all weights are dequantised. ``extract.gguf.models`` checks a file first.

Of a byte-level tokenizer a file names how text is split (``tokenizer.ggml.pre``), after the tokenizer of a model; the
regular expressions are in llama.cpp. transformers' reader knows some names, and splits text of all others as GPT-2
does. Here they are refused unless they are in ``SPLITS``. What begins a text, if the file does not say, is llama.cpp's
default.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from io import StringIO
from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import gguf
import numpy as np
import transformers
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.gguf_reader import ReaderField
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map
from transformers.utils.import_utils import is_kernels_available

from extract.gguf.families import FAMILIES, NEWER, read_fields
from extract.gguf.header import Tensor, read_header
from extract.gguf.models import TOKENIZER, TOKENS, GgufModel
from extract.hub import keep_while_unchanged
from storage.errors import UserError

SPECIAL = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}
"""Fields of the configuration by the tokenizer's entries."""

ROW = 2**14
"""Most elements that are dequantised as one row."""


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


def _make_field(name: str, value: Any) -> ReaderField:
    """A metadata entry as transformers reads it: strings as bytes, each number as a list."""
    values = value if isinstance(value, list) else [value]
    parts: list[Any] = [element.encode() if isinstance(element, str) else [element] for element in values]
    types = [GGUFValueType.get_type(element) for element in values[:1]]
    return ReaderField(
        0, name, parts, [*range(len(parts))], [GGUFValueType.ARRAY, *types] if values is value else types
    )


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
            raise OSError(f"the file was cut while it was read, inside {self.name}")
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
        self.fields = {name: _make_field(name, value) for name, value in used.items()}
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
    """The tokenizer of a file, with the rules that the file names, read once as ``load_config``.

    Callers get the same object, since copies take long, and must not change it. ``UserError`` if the rules are not
    known; else raises what transformers raises.
    """
    tokenizer = _load_tokenizer(model.path)
    metadata, backend = model.header.metadata, tokenizer.backend_tokenizer
    kind, pre = metadata.get(f"{TOKENIZER}model"), metadata.get(f"{TOKENIZER}pre")
    prefix = metadata.get(
        f"{TOKENIZER}add_space_prefix", kind == "llama" and not model.architecture.startswith("gemma")
    )
    if kind == "gpt2":
        if pre not in SPLITS:
            what = f"tokenizer.ggml.pre {pre!a}, whose way to split text is not known"
            _refuse_tokenizer(model, what, ", ".join(SPLITS))
        if prefix:
            what = "add_space_prefix beside a byte-level tokenizer, which puts no space before a text"
            _refuse_tokenizer(model, what, "false")
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
        _refuse_tokenizer(model, f"a tokenizer of the kind {kind!a}", "gpt2, llama, gemma4")
    _set_bos(tokenizer, model, default=kind == "llama" or pre in BEGINS)
    return tokenizer


@keep_while_unchanged(most=1)
def _load_config(path: Path) -> PreTrainedConfig:
    header = read_header(path)
    if header.metadata["general.architecture"] in FAMILIES:
        model_type, fields = read_fields(header)
        fields |= {name: header.metadata.get(f"{TOKENIZER}{entry}") for entry, name in SPECIAL.items()}
        made: PreTrainedConfig = CONFIG_MAPPING[model_type](**fields)
        return made
    with open_alone(path) as where, read_quickly():
        config: PreTrainedConfig = AutoConfig.from_pretrained(**where)
    return config


def list_unread(model: GgufModel, built: PreTrainedModel) -> list[str]:
    """Tensors of a file that the built model does not read, in the order of the file.

    Of architectures of transformers' newer reader, which reports the others itself, those of layers beyond the last.
    """
    tensors, architecture = model.header.tensors, model.architecture
    if architecture in NEWER:
        layers = [f"blk.{layer}." for layer in range(model.header.metadata[f"{architecture}.block_count"])]
        return [name for name in tensors if name.startswith("blk.") and not name.startswith(tuple(layers))]
    make_processor: Any = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    with read_quickly():
        read = get_gguf_hf_weights_map(built, make_processor())
    joined = [f"{name}.weight" for name in read if name.endswith("_exps")]
    if lacking := next((name for name in joined if name not in tensors), None):
        raise UserError(f"The weights of the model '{model.name}' lack the tensor {lacking}; get a complete file")
    own = {"output.weight"} if architecture == "gpt2" else set()  # which its processor reads by itself
    known = {*own, *read, *joined}
    return [name for name in tensors if name not in known]


def check_count(model: GgufModel, built: PreTrainedModel) -> None:
    """Refuse (``UserError``) a file with more or fewer numbers than its model, of which a reader has cut some off."""
    predicting = range(model.read_count("nextn_predict_layers") or 0)  # later tokens, which the model does without
    further = tuple(f"blk.{built.config.num_hidden_layers + layer}." for layer in predicting)
    stored = sum(tensor.elements for name, tensor in model.header.tensors.items() if not name.startswith(further))
    if stored != (own := sum(parameter.numel() for parameter in built.parameters())):
        raise UserError(
            f"The weights of the model '{model.name}' are {stored:,} numbers, but {type(built).__name__} with its "
            f"metadata has {own:,}; measure its safetensors"
        )


@keep_while_unchanged(most=1)
def _load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    with open_alone(path) as where, read_quickly():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**where)
    return tokenizer


@contextmanager
def dequantise() -> Iterator[dict[str, Any]]:
    """Further arguments for loading weights, which are all dequantised, within ``read_quickly``.

    Where standard error is not a terminal, the progress bar of transformers, which cannot be disabled, is discarded.
    """
    with read_quickly(), nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO()):
        yield {"quantization_config": transformers.GgufConfig(dequantize=True)}


def check_architecture(model: GgufModel) -> None:
    """Refuse an architecture (``UserError``) that is not read from GGUF, or that would be read by code from the hub."""
    if model.architecture not in (known := list_architectures()):
        raise UserError(
            f"The model '{model.name}' has the architecture {model.architecture[:60]!a}, which is not read from GGUF "
            f"files; these are: {', '.join(known)}; measure its safetensors"
        )

    if model.architecture in GGUF_CONFIG_ARCHS and is_kernels_available():
        raise UserError(
            f"The model '{model.name}' has the architecture '{model.architecture}', for which transformers fetches "
            "kernels from the hub, because the package kernels is installed; uninstall it: pip uninstall kernels"
        )


def list_architectures() -> list[str]:
    """Names in GGUF of the architectures that are read from GGUF files."""
    return sorted({*FAMILIES, *NEWER})


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
    said = model.header.metadata.get(f"{TOKENIZER}add_bos_token")
    begins = said if isinstance(said, bool) else default
    if begins and tokenizer.bos_token_id is None:
        _refuse_tokenizer(model, "a tokenizer that puts BOS before a text", f"{TOKENIZER}bos_token_id, which it lacks")
    if tokenizer.add_bos_token != begins and model.header.metadata.get(f"{TOKENIZER}model") != "gemma4":
        tokenizer.add_bos_token = begins


def _refuse_tokenizer(model: GgufModel, what: str, known: str) -> NoReturn:
    raise UserError(
        f"The model '{model.name}' has {what} (needed: {known}); measure its safetensors, or convert it again"
    )
