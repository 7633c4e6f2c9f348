"""Models and tokenizers: finding them, describing them for the provenance, loading them safely.

Holds everything between the settings and a model in memory that is ready to run. What does not belong here: running it
(``extract.capture``, ``extract.extraction``) and text (``extract.corpora``).

Only safetensors are read and no code that comes with a checkpoint is ever run.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from extract.hub import means_a_path, one_line, quiet
from extract.settings import EMBEDDED, SYNTHETIC, ExtractionSettings, ModelSettings
from storage.errors import UserError

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
"""Suffixes of weights that are never read, because reading them may run code."""

LOADING_ERRORS = (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError, RuntimeError, SafetensorError)
"""What transformers raises on checkpoints it cannot read."""

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "status_alloc_failed",
    "allocation_failed",
)
"""What is said when there is no more memory, in lower case: by torch's allocators on GPUs, on the CPU, and on the CPU
under Windows; by cuBLAS and cuDNN, and by cuDNN from version 9 on."""


@dataclass(frozen=True)
class Source:
    """Where the files of a model are."""

    name: str
    """The id as the user wrote it."""
    location: str
    """The directory, or the hub id."""
    commit: str | None
    """The commit of the hub id; None for a directory."""


@dataclass(frozen=True)
class Description:
    """All that is known of a model without its weights."""

    source: Source
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    device_map: str | None
    """How the layers are spread over several GPUs; None: all are on ``device``."""
    dtype: torch.dtype
    provenance: dict[str, dict[str, Any]]
    """``model``: id, commit or SHA-256 of the files, architecture, what draws random weights (``random_weights``);
    ``tokenizer``: SHA-256, whether it has a BOS."""
    weights_seed: int | None = None
    """Seed of random weights; None: those of the checkpoint."""


@quiet()
def describe(settings: ExtractionSettings) -> Description:
    """Find the model, read its configuration and tokenizer and hash its files; no weights are loaded.

    A model with random weights is identified by its configuration, the seed and the versions that draw them: files of
    weights need not be there, and are not read.

    Raises
    ------
    UserError
        If the device is absent, the model or its tokenizer is missing or cannot be read, needs code of its own, has
        pickled weights only, is no causal language model, or reads fewer tokens than ``context_length``.
    """
    device = find_device(settings.device)
    source = _locate(settings.model)
    config = _config(source)
    _check_length(source, config, settings.context_length)
    tokenizer = _tokenizer(source)
    architecture = (config.architectures or [type(config).__name__])[0]
    trained = settings.weights_seed is None
    local = not source.commit
    made_of = {"sha256": _files_hash(Path(source.location), trained=trained)} if local else {"commit": source.commit}
    provenance: dict[str, dict[str, Any]] = {
        "model": {"id": source.name, **made_of, "architecture": architecture, **random_weights(settings)},
        "tokenizer": {"sha256": _tokenizer_hash(tokenizer), "bos": tokenizer.bos_token_id is not None},
    }
    dtype = getattr(torch, settings.dtype)
    return Description(source, config, tokenizer, device, settings.device_map, dtype, provenance, settings.weights_seed)


def random_weights(settings: ExtractionSettings) -> dict[str, Any]:
    """What decides random weights beside the configuration: their seed and the versions that draw them.

    Returns
    -------
    dict
        ``weights``, ``weights_seed`` and ``initialised_by``; empty where the weights are the checkpoint's.
    """
    if settings.weights_seed is None:
        return {}
    drawn_by = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return {"weights": "random", "weights_seed": settings.weights_seed, "initialised_by": drawn_by}


@quiet()
def load(description: Description) -> PreTrainedModel:
    """The described model in eval mode, in its dtype, on its device, or spread over all GPUs.

    Weights go from the files to where they stay; nowhere are there two copies of the model. Random ones are drawn on
    the CPU, in the model's dtype, so that they are the same on every device.

    Raises
    ------
    UserError
        If the weights cannot be read, do not cover the model, or do not fit into memory.
    """
    return _trained(description) if description.weights_seed is None else _random(description)


def _trained(description: Description) -> PreTrainedModel:
    """The model with the checkpoint's weights."""
    source = description.source
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.location,
            revision=source.commit,
            config=description.config,
            dtype=description.dtype,
            device_map=description.device_map or {"": description.device},
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        model: PreTrainedModel = loaded[0].eval()
    except (*LOADING_ERRORS, MemoryError) as error:
        raise UserError(_not_loaded("The weights", source, error)) from error
    prefix = f"{model.base_model_prefix}."
    if lacking := sorted(key for key in loaded[1]["missing_keys"] if key.startswith(prefix)):
        msg = (
            f"The weights of the model '{source.name}' lack {len(lacking)} tensors, such as {lacking[0]}; "
            "get a complete checkpoint"
        )
        raise UserError(msg)
    return model


def _random(description: Description) -> PreTrainedModel:
    """The model as its architecture initialises it, under the seed; the state of torch's generator is left alone."""
    source, seed = description.source, description.weights_seed
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed or 0)
            made: Any = AutoModelForCausalLM.from_config(deepcopy(description.config), dtype=description.dtype)
        made.eval()
        model: PreTrainedModel = (
            _spread(made, description.device_map) if description.device_map else made.to(description.device)
        )
    except (*LOADING_ERRORS, MemoryError) as error:
        raise UserError(_not_loaded("Random weights", source, error)) from error
    return model


def _spread(model: PreTrainedModel, device_map: str) -> PreTrainedModel:
    """A model whose layers are spread over all GPUs as ``device_map`` says; left where it is without any."""
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory, get_max_memory

    whole = {"no_split_module_classes": sorted(model._no_split_modules or ())}
    if device_map == "sequential":
        room = get_max_memory()
    else:
        room = get_balanced_memory(model, low_zero=device_map == "balanced_low_0", **whole)
    spread: PreTrainedModel = dispatch_model(model, infer_auto_device_map(model, max_memory=room, **whole))
    return spread


def _not_loaded(what: str, source: Source, error: BaseException) -> str:
    """What to say when weights cannot be brought into memory."""
    remedy = "; set dtype: bfloat16 or device_map: auto, or use another device" if out_of_memory(error) else ""
    return f"{what} of the model '{source.name}' cannot be loaded: {one_line(error)}{remedy}"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed for lack of memory, of a device or of this machine."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in said for words in OUT_OF_MEMORY)
    )


@quiet()
def token_texts(model: ModelSettings, ids: Sequence[int]) -> list[str]:
    """The text of each token id on its own, spaces included; bytes that are no whole character read as U+FFFD.

    Reads the tokenizer only. Each id is decoded behind another token, since some tokenizers drop a leading space at
    the beginning of a text. The tokens of a synthetic study are positions: p0, p1 and so on.

    Raises
    ------
    UserError
        If the model or its tokenizer is missing or cannot be read.
    """
    if model.id == SYNTHETIC:
        return [f"p{index}" for index in ids]
    tokenizer = _tokenizer(_locate(model))
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    start = len(str(tokenizer.decode(before)))
    return [str(tokenizer.decode([*before, index]))[start:] for index in ids]


def find_device(name: str) -> torch.device:
    """The device ``name`` stands for, if it is there.

    Raises
    ------
    UserError
        If it is not.
    """
    if name == "auto":
        return torch.device(
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    device = torch.device(name)
    if device.type == "mps" and not torch.backends.mps.is_available():
        msg = "The device 'mps' is asked for, but this machine has none; use device: auto or cpu"
        raise UserError(msg)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        msg = f"The device '{name}' is asked for, but this machine has {found} CUDA devices; use device: auto or cpu"
        raise UserError(msg)
    return device


def _locate(model: ModelSettings) -> Source:
    """The directory of a local model, or the hub id with the commit its revision stands for."""
    if model.id == EMBEDDED or means_a_path(model.id):
        path = _embedded() if model.id == EMBEDDED else Path(model.id).expanduser()
        return Source(model.id, str(_directory(model.id, path, trained=model.weights == "trained")), None)
    return Source(model.id, model.id, _commit(model))


def _embedded() -> Path:
    """The directory of the model shipped with the package."""
    return Path(str(files("extract.embedded") / "model"))


def _directory(name: str, path: Path, *, trained: bool) -> Path:
    """A directory that holds a configuration and, where those are ``trained``, weights in safetensors."""
    if not path.is_dir():
        msg = f"There is no model directory '{name}'; give a directory, a hub id such as gpt2, or '{EMBEDDED}'"
        raise UserError(msg)
    if not (path / "config.json").is_file():
        msg = f"The model directory '{name}' has no config.json; write it with model.save_pretrained"
        raise UserError(msg)
    if trained and not any(path.glob("*.safetensors")):
        pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLED)
        found = (
            f"pickled weights only ({pickled[0]}), which may run code and are never read" if pickled else "no weights"
        )
        msg = f"The model directory '{name}' has {found}; write safetensors with model.save_pretrained"
        raise UserError(msg)
    return path


def _commit(model: ModelSettings) -> str:
    """The commit a hub id's revision stands for, from the hub or from the local cache."""
    name = f"The model '{model.id}' (revision {model.revision})"
    try:
        return Path(hf_hub_download(model.id, "config.json", revision=model.revision)).parent.name
    except GatedRepoError as error:
        msg = (
            f"{name} is gated: accept its licence at https://huggingface.co/{model.id}, "
            "then log in with `hf auth login` or set HF_TOKEN"
        )
        raise UserError(msg) from error
    except RevisionNotFoundError as error:
        msg = f"{name} has no such revision on the Hugging Face hub; give a branch, tag or commit of it"
        raise UserError(msg) from error
    except RepositoryNotFoundError as error:
        msg = (
            f"{name} is neither a local directory nor on the Hugging Face hub; check the id, "
            "and if it is private log in with `hf auth login` or set HF_TOKEN"
        )
        raise UserError(msg) from error
    except LocalEntryNotFoundError as error:
        msg = (
            f"{name} is neither a local directory nor in the local cache, and the Hugging Face hub cannot be reached; "
            "check the network and HF_HUB_OFFLINE, or give a local directory"
        )
        raise UserError(msg) from error
    except EntryNotFoundError as error:
        msg = f"{name} has no config.json on the Hugging Face hub; choose a transformers model"
        raise UserError(msg) from error
    except OSError as error:
        msg = f"{name} cannot be read from the Hugging Face hub: {one_line(error)}; try again later"
        raise UserError(msg) from error


def _config(source: Source) -> PreTrainedConfig:
    """The configuration of a causal language model that transformers itself knows."""
    where = {"revision": source.commit, "trust_remote_code": False}
    try:
        kind = _model_type(source, PreTrainedConfig.get_config_dict(source.location, **where)[0])
        config: PreTrainedConfig = AutoConfig.from_pretrained(source.location, **where)
    except LOADING_ERRORS as error:
        msg = f"The config.json of the model '{source.name}' is not valid: {one_line(error)}"
        raise UserError(msg) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        msg = (
            f"The model '{source.name}' is of type '{kind}', which is no causal language model; "
            "choose a decoder such as gpt2"
        )
        raise UserError(msg)
    return config


def _model_type(source: Source, raw: Mapping[str, Any]) -> str:
    """The architecture's name in transformers, from a configuration as it stands in config.json."""
    kind = raw.get("model_type")
    if kind in CONFIG_MAPPING:
        return str(kind)
    if "auto_map" in raw:
        why = (
            "needs code of its own (trust_remote_code), which is never run; choose a model that is part of transformers"
        )
    else:
        why = f"is of type '{kind}', which transformers {transformers.__version__} does not know; upgrade transformers"
    msg = f"The model '{source.name}' {why}"
    raise UserError(msg)


def _check_length(source: Source, config: PreTrainedConfig, context_length: int) -> None:
    """Refuse a context longer than the model has positions."""
    most = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if most is not None and context_length > most:
        msg = (
            f"The model '{source.name}' reads at most {most} tokens, context_length asks for {context_length}; "
            f"set context_length to {most} or less"
        )
        raise UserError(msg)


def _tokenizer(source: Source) -> PreTrainedTokenizerBase:
    """The model's tokenizer."""
    try:
        return AutoTokenizer.from_pretrained(source.location, revision=source.commit, trust_remote_code=False)
    except LOADING_ERRORS as error:
        msg = (
            f"The model '{source.name}' has no tokenizer that can be read ({one_line(error)}); "
            "write one beside it with tokenizer.save_pretrained"
        )
        raise UserError(msg) from error


def _tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of what decides the token ids of a text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend else json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{rules}{tokenizer.bos_token_id},{tokenizer.eos_token_id}".encode()).hexdigest()


def _files_hash(directory: Path, *, trained: bool) -> str:
    """SHA-256 over configuration and trained weights, by name, in order of their names."""
    digest = hashlib.sha256()
    weights = directory.glob("*.safetensors") if trained else ()
    for path in sorted([directory / "config.json", *weights]):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()
