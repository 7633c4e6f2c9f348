"""Models and tokenizers: finding them, describing them for the provenance, loading them safely.

Only safetensors and GGUF files are read, and no code that comes with a checkpoint is ever run. A checkpoint of the hub
is downloaded before transformers opens it, and then checked like a local one.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
import transformers
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    StrictDataclassError,
)
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the HTTP client that it uses
from numpy.typing import NDArray
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.pytorch_utils import Conv1D

from extract.checkpoints import CONFIG, INDEX_SUFFIX, NO_TOKENIZER, Checkpoint, Folder, list_first_weights, list_shards
from extract.gguf.loading import (
    check_architecture,
    check_count,
    dequantise,
    list_unread,
    load_config,
    load_tokenizer,
    open_alone,
)
from extract.gguf.models import GgufModel
from extract.hub import is_hub_reachable, silence_libraries, summarise_error
from extract.identity import describe_changed_weights, describe_model, is_local_model, open_model
from extract.models.architectures import check_both_halves
from extract.models.checks import (
    check_checkpoint,
    check_model,
    check_positions,
    check_sizes,
    count_positions,
    find_device,
    read_tensor_shapes,
)
from extract.models.completeness import check_frequencies, check_tensors, refuse_unread, report_all_tensors
from extract.settings import SYNTHETIC, Bos, ExtractionSettings, ModelSettings
from extract.texts.decoding import decode_sequences
from extract.texts.tokenization import check_start, find_frame, find_start, spell_tokens
from extract.texts.tokenization import load_tokenizer as load_tokenizer_files
from storage.errors import UserError

MODEL_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of models that cannot read a plain sequence, or cannot read one in blocks."""

LOADING_ERRORS = (*MODEL_ERRORS, ArithmeticError, ImportError, OSError, SafetensorError, StrictDataclassError)
"""Errors that transformers and tokenizers raise for checkpoints that they cannot read."""

OVERSIZE = 2
"""Largest ratio of the parameters of a configuration to those of the weights; missing tensors are reported later."""

PACKED = 8
"""Most quantised weights in one element: 8 of 4 bits in 32 bits."""

DOWNLOADS = 4
"""Number of weights files downloaded at the same time."""

HUB_REFUSALS: Mapping[type[Exception], str] = {
    GatedRepoError: "is gated: accept its licence at https://huggingface.co/{id}, then log in with `hf auth login` or "
    "set HF_TOKEN",
    RevisionNotFoundError: "has no such revision on the Hugging Face hub; give a branch, tag or commit of it",
    RepositoryNotFoundError: "is neither a local directory nor on the Hugging Face hub; check the id, and if it is "
    "private log in with `hf auth login` or set HF_TOKEN",
    LocalEntryNotFoundError: "is neither a local directory nor in the local cache, and the Hugging Face hub cannot be "
    "reached; check the network and HF_HUB_OFFLINE, or give a local directory",
    EntryNotFoundError: "has no {file} on the Hugging Face hub; {remedy}",
    OSError: "cannot be read from the Hugging Face hub: {error}; try again later",
}
"""What is said of a hub id by the error that the hub's client raises, subclasses first."""

OWN_CODE = "needs its own code (trust_remote_code), which is never run; choose a model that is part of transformers"

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "status_alloc_failed",
    "allocation_failed",
)
"""Fragments of out-of-memory errors, in lower case: of torch's allocators on GPUs, on the CPU, and on the CPU under
Windows; of cuBLAS and cuDNN, and of cuDNN from version 9 on."""


@dataclass(frozen=True)
class Source:
    """Where the files of a model are."""

    name: str
    """The id as the user wrote it."""
    location: str
    """The directory, the hub id, or the GGUF file."""
    commit: str | None
    """The commit of the hub id; None for local files."""
    files: Checkpoint | GgufModel | None = None
    """The files of a directory, or the GGUF file; None for a checkpoint of the hub that is not downloaded yet."""

    @property
    def gguf(self) -> GgufModel | None:
        """The GGUF file; None if it is not one."""
        return self.files if isinstance(self.files, GgufModel) else None

    @property
    def config_name(self) -> str:
        """What the configuration is read from."""
        return "metadata" if self.gguf else CONFIG

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The arguments by which ``from_pretrained`` reads from here."""
        if self.gguf:
            with open_alone(self.gguf.path) as where:
                yield where
        else:
            yield {"pretrained_model_name_or_path": self.location, "revision": self.commit, "trust_remote_code": False}


@dataclass(frozen=True)
class Description:
    """All that is known about a model without its weights."""

    source: Source
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    settings: ExtractionSettings
    """How it is loaded: in which type, spread over GPUs or not, with random weights or rounded ones."""
    provenance: dict[str, dict[str, Any]]
    """``model``: id, commit or hashes of the files, architecture, origin of random weights
    (``identity.describe_changed_weights``); ``tokenizer``: hashes, and ``describe_tokenizer``."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        known: torch.dtype = getattr(torch, self.settings.dtype)
        return known


@silence_libraries()
def describe(settings: ExtractionSettings, *, identify: bool = True) -> Description:
    """Find the model, read its configuration and tokenizer and hash its files; no weights are loaded.

    A model with random weights is identified by its configuration, the seed and the versions of the libraries that draw
    them: weights files are not read. Without ``identify``, for what leaves no record, the provenance is empty.
    """
    device = find_device(settings.device)
    source = _locate(settings.model)
    if source.files:
        check_model(source.files, settings.context_length)
    config = _load_config(source)
    check_positions(source.name, count_positions(config.to_dict()), settings.context_length)
    tokenizer = _load_tokenizer(source)
    if not source.gguf:
        with source.open() as where:
            check_start(source.name, tokenizer, where, settings.bos)
    if not identify:
        return Description(source, config, tokenizer, device, settings, {})
    hub = {"model": {"id": settings.model.id, **describe_changed_weights(settings)}}
    known: dict[str, dict[str, Any]] = describe_model(source.files, settings) if source.files else hub
    commit = {"commit": source.commit} if source.commit else {}
    if source.gguf:  # which names only the family
        architecture = str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type])
    else:
        architecture = str((config.architectures or [type(config).__name__])[0])
    provenance = {
        "model": {**known["model"], **commit, "architecture": architecture},
        "tokenizer": {**known.get("tokenizer", {}), **describe_tokenizer(tokenizer, settings.bos)},
    }
    return Description(source, config, tokenizer, device, settings, provenance)


@silence_libraries()
def load(description: Description) -> PreTrainedModel:
    """Load the described model in eval mode, in its dtype, on its device, or spread over all GPUs.

    Weights are read from safetensors directly to their device; those of a GGUF file are first dequantised in the memory
    of the CPU, one tensor in float32 at a time. Random weights are drawn on the CPU, so that all devices have the same.
    """
    model = _load_trained(description) if description.settings.weights_seed is None else _load_random(description)
    if kind := description.settings.model.quantised:
        round_weights(model, kind)
    return model


def _load_trained(description: Description) -> PreTrainedModel:
    source = description.source
    files = source.files or _download(source)
    _check_size(description, files)
    expanded: AbstractContextManager[dict[str, Any]] = dequantise() if source.gguf else nullcontext({})
    try:
        with source.open() as where, expanded as how, report_all_tensors():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                **where,
                **how,
                config=description.config,
                dtype=description.dtype,
                device_map=description.settings.device_map or {"": description.device},
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                output_loading_info=True,
            )
        model: PreTrainedModel = loaded[0].eval()
    except (*LOADING_ERRORS, MemoryError) as error:
        raise _make_loading_error(source, error) from error
    shapes = {} if isinstance(files, GgufModel) else read_tensor_shapes(files)
    check_tensors(source.name, source.config_name, model, loaded[1], shapes)
    if isinstance(files, Checkpoint):
        check_frequencies(files, model, shapes)
    else:
        check_count(files, model)
    return model


def _make_loading_error(source: Source, error: BaseException, what: str = "The weights") -> UserError:
    remedy = "; set dtype: bfloat16 or device_map: auto, or use another device" if is_out_of_memory(error) else ""
    return UserError(f"{what} of the model '{source.name}' cannot be loaded: {summarise_error(error)}{remedy}")


def _download(source: Source) -> Checkpoint:
    """Download the files of a hub checkpoint that transformers reads to the cache, and check them."""
    fetch = partial(hf_hub_download, source.location, revision=source.commit)
    try:
        files = Folder(source.name, Path(fetch(CONFIG)).parent)
        for name in list_first_weights(files, files.read_json(CONFIG)):
            with suppress(EntryNotFoundError):
                fetch(name)
                if name.endswith(INDEX_SUFFIX):
                    with ThreadPoolExecutor(max_workers=DOWNLOADS) as pool:
                        list(pool.map(fetch, list_shards(files, name)))
                break
    except (*LOADING_ERRORS, httpx.HTTPError) as error:
        raise _make_loading_error(source, error) from error
    checkpoint = Checkpoint.open(source.name, files.path)
    check_checkpoint(checkpoint)
    return checkpoint


def _check_size(description: Description, files: Checkpoint | GgufModel) -> None:
    """Refuse a configuration with far more parameters than the weights hold, or than fit into memory."""
    source = description.source
    if (model := _build_on_meta(description)) is None:
        return
    if isinstance(files, GgufModel) and (unread := list_unread(files, model)):
        refuse_unread(source.name, source.config_name, model, unread)
    described = sum(tensor.numel() for tensor in model.parameters())
    held = files.elements if isinstance(files, GgufModel) else sum(map(prod, read_tensor_shapes(files).values()))
    if described > OVERSIZE * held * (PACKED if hasattr(description.config, "quantization_config") else 1):
        raise UserError(
            f"The {source.config_name} of the model '{source.name}' describes {described:,} parameters, "
            f"but its weights hold {held:,}; get the configuration that belongs to them"
        )
    _check_memory(description, model)


def _build_on_meta(description: Description) -> PreTrainedModel | None:
    """Build the model on torch's device ``meta``, on which tensors use no memory.

    None if it cannot be built: transformers fails in the same way later and reports the reason.
    """
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                deepcopy(description.config), dtype=description.dtype, trust_remote_code=False
            )
    except LOADING_ERRORS:
        return None
    return model


def _check_memory(description: Description, model: PreTrainedModel) -> None:
    """Refuse a model on the CPU that does not fit into the memory of this machine."""
    needed = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    if description.device.type == "cpu" and description.settings.device_map is None and needed > find_machine_memory():
        raise UserError(
            f"The model '{description.source.name}' needs {needed / 1e9:,.1f} GB of memory, but this machine has "
            f"{find_machine_memory() / 1e9:,.1f} GB; set dtype: bfloat16 or choose a smaller model"
        )


def find_machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _load_random(description: Description) -> PreTrainedModel:
    """The model as its architecture initialises it with the seed; the state of torch's generator does not change."""
    source, seed = description.source, description.settings.weights_seed
    if (sizes := _build_on_meta(description)) is not None:
        _check_memory(description, sizes)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed or 0)
            made: Any = AutoModelForCausalLM.from_config(deepcopy(description.config), dtype=description.dtype)
        made.eval()
        model: PreTrainedModel = (
            _spread(made, description.settings.device_map)
            if description.settings.device_map
            else made.to(description.device)
        )
    except (*LOADING_ERRORS, MemoryError) as error:
        raise _make_loading_error(source, error, "Random weights") from error
    return model


def _spread(model: PreTrainedModel, device_map: str) -> PreTrainedModel:
    """Spread the layers of a model over all GPUs according to ``device_map``; without a GPU the model is not moved."""
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory, get_max_memory

    whole = {"no_split_module_classes": sorted(model._no_split_modules or ())}
    if device_map == "sequential":
        room = get_max_memory()
    else:
        room = get_balanced_memory(model, low_zero=device_map == "balanced_low_0", **whole)
    spread: PreTrainedModel = dispatch_model(model, infer_auto_device_map(model, max_memory=room, **whole))
    return spread


@torch.inference_mode()
def round_weights(model: PreTrainedModel, kind: str) -> None:
    """Replace every matrix of a model, but no vector, by what a GGUF file of a type (``Q8_0``) would give back.

    Matrices are quantised along the axis that they are multiplied over, as in a file; tied ones once. One at a time is
    in memory as float32.
    """
    of_type = GGMLQuantizationType[kind]
    transposed = {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        rows = weight.mT if id(weight) in transposed else weight
        block = GGML_QUANT_SIZES[of_type][0]
        if rows.shape[-1] % block:
            raise UserError(
                f"Weights cannot be rounded to {kind}: {name} has rows of {rows.shape[-1]}, no multiple of {block}"
            )
        stored = quantize(np.ascontiguousarray(rows.float().cpu().numpy()), of_type)
        rows.copy_(torch.from_numpy(dequantize(stored, of_type)))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports an allocation that failed for lack of memory, on a device or on this machine."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in said for words in OUT_OF_MEMORY)
    )


def decode_tokens(model: ModelSettings, sequences: NDArray[np.int32]) -> Iterator[list[str]]:
    """The text of each token of sequences (S, K), as ``decode_sequences``; only the tokenizer is read.

    The tokens of a synthetic study are positions: p0, p1 and so on.
    """
    if model.id == SYNTHETIC:
        return ([f"p{index}" for index in sequence.tolist()] for sequence in sequences)
    with silence_libraries():
        tokenizer = _load_tokenizer(_locate(model))
    return decode_sequences(tokenizer, sequences)


def _locate(model: ModelSettings) -> Source:
    """The files of a local model, or the hub id with the commit of its revision; a GGUF file of it is downloaded."""
    if is_local_model(model):
        model_source = open_model(model)
        path = model_source.path if isinstance(model_source, GgufModel) else model_source.files.path
        return Source(model.name, str(path), None, model_source)
    there = _fetch_first(model)
    if model.gguf is None:
        return Source(model.id, model.id, there.parent.name)
    commit = there.parents[len(PurePosixPath(model.gguf).parts) - 1].name
    return Source(model.name, str(there), commit, GgufModel.open(model.name, there))


def _fetch_first(model: ModelSettings) -> Path:
    """The GGUF file, or else the configuration, of a hub id, from the hub or the cache, in the folder of its commit."""
    name, file = f"The model '{model.id}' (revision {model.revision})", model.gguf or CONFIG
    is_hub_reachable()  # if it is not, the local cache alone is asked, once
    try:
        return Path(hf_hub_download(model.id, file, revision=model.revision))
    except (OSError, EntryNotFoundError) as error:
        why = next(why for kind, why in HUB_REFUSALS.items() if isinstance(error, kind))
        remedy = "check its name" if model.gguf else "choose a transformers model, or name a GGUF file of it (--gguf)"
        known = {"id": model.id, "file": file, "remedy": remedy, "error": summarise_error(error)}
        raise UserError(f"{name} {why.format(**known)}") from error


def _load_config(source: Source) -> PreTrainedConfig:
    """The configuration of a causal language model that is part of transformers."""
    try:
        if source.gguf:
            check_architecture(source.gguf)
            config = load_config(source.gguf)
        else:
            with source.open() as where:
                raw = PreTrainedConfig.get_config_dict(**where)[0]
                check_sizes(source.name, raw, None)
                if (kind := raw.get("model_type")) not in CONFIG_MAPPING:
                    newer = f"is of type '{kind}', which transformers {transformers.__version__} does not know; "
                    why = OWN_CODE if "auto_map" in raw else f"{newer}upgrade transformers"
                    raise UserError(f"The model '{source.name}' {why}")
                config = AutoConfig.from_pretrained(**where)
    except LOADING_ERRORS as error:
        raise UserError(
            f"The {source.config_name} of the model '{source.name}' is not valid: {summarise_error(error)}"
        ) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"The model '{source.name}' is of type '{config.model_type}', which is not a causal language model; "
            "choose a decoder such as gpt2"
        )
    check_both_halves(config, f"The model '{source.name}' of type '{config.model_type}'")
    return config


def _load_tokenizer(source: Source) -> PreTrainedTokenizerBase:
    try:
        if source.gguf:
            tokenizer = load_tokenizer(source.gguf)
        else:
            with source.open() as where:
                tokenizer = load_tokenizer_files(where)
        knows = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    except UserError as error:
        raise UserError(f"The tokenizer of the model '{source.name}' cannot be used: {error}") from error
    except Exception as error:
        remedy = "get the file again" if source.gguf else "save one in its directory with tokenizer.save_pretrained"
        raise UserError(
            f"The model '{source.name}' has no tokenizer that can be read ({summarise_error(error)}); {remedy}"
        ) from error
    if not knows:
        raise UserError(f"The model '{source.name}' has {NO_TOKENIZER}")
    return tokenizer


def describe_tokenizer(tokenizer: PreTrainedTokenizerBase, bos: Bos) -> dict[str, str | list[str]]:
    """The part of the provenance on a tokenizer.

    SHA-256 of its rules from text to ids; the tokens with which every sequence begins; and those that it puts after a
    text, which are left out.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend else json.dumps(sorted(tokenizer.get_vocab().items()))
    digest = hashlib.sha256(f"{rules}{tokenizer.bos_token_id},{tokenizer.eos_token_id}".encode()).hexdigest()
    start, end = find_start(tokenizer, bos), find_frame(tokenizer)[1]
    return {"sha256": digest, "start": spell_tokens(tokenizer, start), "end": spell_tokens(tokenizer, end)}
