"""Immediate checks of a study's inputs, that load neither torch, transformers nor datasets, and of where it runs.

``check_inputs`` refuses a study within a fraction of a second; ``check_hub`` alone may ask the network. Shapes of
tensors come from the headers of the weights files. Checks that need a library are in ``extract.models.loading`` and
``extract.texts.corpora``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extract import text_files
from extract.checkpoints import Checkpoint
from extract.gguf.models import GgufModel
from extract.hub import is_hub_reachable, summarise_error
from extract.identity import is_local_corpus, is_local_model, open_model
from extract.settings import BUILT_IN, SYNTHETIC, ExtractionSettings
from storage.errors import UserError

if TYPE_CHECKING:
    import torch

HEADER_BYTES = 2**25
"""Largest size in bytes of the header of a safetensors file: names and offsets of some 300,000 tensors."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model", "emb_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads")
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_target_positions",
    "model_max_length",
    "n_ctx",
)
"""Names of fields in the configurations of transformers' architectures."""

SIZES = (*LAYERS, *WIDTHS, *HEADS, *KV_HEADS, *POSITIONS, "head_dim", "vocab_size", "intermediate_size")
"""Fields that hold a whole number of at least 1, or null."""

LISTS = ("intermediate_size", *HEADS, *KV_HEADS)
"""Those of ``SIZES`` that may also hold a list of such numbers, one per layer."""

COUNTS = ("blocks", "codebooks", "experts", "groups", "heads", "labels", "layers")
"""Endings of other fields, beginning with ``num_`` or ``n_``, that hold a count."""

COUNTED = 10**5
"""Largest such count."""

KERNELS = ("attn_implementation", "experts_implementation")
"""Fields that may name code on the hub."""

PARTS = ("text_config", "decoder")
"""Parts of the configuration of a composite model that describe its text model."""

FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of weights that are stored as they are."""

QUANTISED = ("quantization_config", "compression_config")
"""Fields that describe how weights are quantised."""

Shapes = Mapping[str, tuple[int, ...]]


def read_tensor_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """Read the shape of every tensor of the weights, by name, from the headers of the files; no tensor is read."""
    shapes: dict[str, tuple[int, ...]] = {}
    described = any(field in checkpoint.config for field in QUANTISED)
    for name in checkpoint.weights:
        try:
            for tensor, shape, kind in _read_header(checkpoint.files.path / name):
                if tensor in shapes:
                    checkpoint.files.refuse(f"has the tensor {tensor} in two of its weights files; remove one of them")
                if tensor.endswith(".weight") and kind not in FLOATS and not described:
                    what = f"stores {tensor} as {kind}, but its config.json has no {QUANTISED[0]}"
                    checkpoint.files.refuse(f"{what}, which says what the numbers mean; restore it")
                shapes[tensor] = shape
        except (OSError, ValueError) as error:
            what = f"has weights that are not valid safetensors, '{name}' ({summarise_error(error)})"
            checkpoint.files.refuse(f"{what}; copy them again")
    return shapes


def _read_header(path: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Names, shapes and types of the tensors of one file, whose header has been checked against the file's size."""
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > HEADER_BYTES:
        raise ValueError(f"its header has {size} bytes, more than {HEADER_BYTES}")
    try:
        with safe_open(path, framework="numpy") as opened:
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                part = opened.get_slice(name)
                yield name, tuple(part.get_shape()), part.get_dtype()
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def check_sizes(name: str, config: Mapping[str, Any], shapes: Shapes | None) -> None:
    """Refuse (``UserError``) a configuration whose sizes are of a wrong type, or too large for the tensors.

    ``shapes`` is None if they are not known: then only types are checked.
    """
    for prefix, part in _iterate_parts(config):
        for field, value in part.items():
            if why := _find_field_error(field, value) or _find_count_error(field, value, shapes):
                raise UserError(f"The config.json of the model '{name}' is not valid: {prefix}{field} {why}")


def count_positions(config: Mapping[str, Any]) -> int | None:
    """Number of positions that the configuration gives the text model, the least if it gives several; None if none."""
    for _, part in reversed([*_iterate_parts(config)]):
        known: list[int] = [part[field] for field in POSITIONS if isinstance(part.get(field), int)]
        if known:
            return min(known)
    return None


def _iterate_parts(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The configuration and those of its parts that describe the text model, each with the prefix of its fields."""
    yield "", config
    for name in PARTS:
        part = config.get(name)
        if isinstance(part, dict):
            yield f"{name}.", part


def _find_field_error(field: str, value: object) -> str | None:
    """What is wrong with the type of the architectures or a size, or with code from the hub; None if nothing is."""
    if field == "architectures" and value is not None:
        names = value if isinstance(value, list) else [None]
        return (
            None if all(isinstance(name, str) for name in names) else f"should be names, found {_format_value(value)}"
        )
    if field in KERNELS and "/" in str(value):
        return f"asks for code from the hub, which is never run: {_format_value(value)}"
    if field not in SIZES or value is None:
        return None
    given = value if isinstance(value, list) and field in LISTS else [value]
    numbers = [number for number in given if isinstance(number, int) and not isinstance(number, bool)]
    if len(numbers) < len(given):
        return f"should be a whole number, found {_format_value(value)}"
    if any(number < 1 for number in numbers):
        return f"should be 1 or more, found {_format_value(value)}"
    return None


def _find_count_error(field: str, value: object, shapes: Shapes | None) -> str | None:
    """What is wrong with a number of parts, so many of which would take long to build; None if nothing is."""
    if shapes is not None and isinstance(value, int):
        if field in LAYERS and value > len(shapes):
            return f"is {value}, but the weights have {len(shapes)} tensors"
        if field.startswith(("num_", "n_")) and field.endswith(COUNTS) and value > COUNTED:
            return f"is {value}, more than the weights can hold"
    return None


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse (``UserError``) a local model or corpus that is missing or not valid, or has too few positions.

    The headers of weights files and the configuration are read; neither weights nor text are. Ids of the hub and the
    device are not checked.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        check_model(open_model(settings.model), settings.context_length)
    if is_local_corpus(settings.corpus) and settings.corpus.id not in BUILT_IN:
        text_files.find_files(settings.corpus)


def check_model(description: Checkpoint | GgufModel, context_length: int) -> None:
    """Refuse a local model (``UserError``) with damaged weights, without a tokenizer, or with too few positions.

    A GGUF file has been checked when it was opened, except for its positions.
    """
    if isinstance(description, GgufModel):
        check_positions(description.name, description.read_count("context_length"), context_length)
        return
    check_checkpoint(description)
    description.check_tokenizer()
    check_positions(description.name, count_positions(description.config), context_length)


def check_checkpoint(description: Checkpoint) -> None:
    """Refuse (``UserError``) damaged weights, and a configuration whose sizes do not fit them; random ones fit any."""
    check_sizes(
        description.files.name, description.config, read_tensor_shapes(description) if description.weights else None
    )


def check_positions(name: str, most: int | None, context_length: int) -> None:
    """Refuse a context (``UserError``) longer than the model's positions, ``most``; None if there is no known limit."""
    if most is not None and context_length > most:
        raise UserError(
            f"The model '{name}' reads at most {most} tokens, but context_length is {context_length}; "
            f"set context_length to {most} or less"
        )


def check_hub(settings: ExtractionSettings) -> None:
    """Refuse (``UserError``) a model or corpus of the hub that does not answer, unless a part of it is in the cache."""
    if settings.model.id == SYNTHETIC:
        return
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    for what, repository, name, local, kind in (
        ("model", "model", settings.model.id, is_local_model(settings.model), "directory"),
        ("corpus", "dataset", settings.corpus.id, is_local_corpus(settings.corpus), "file or directory"),
    ):
        if local:
            continue
        cached = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type=repository))
        if not cached.exists() and not is_hub_reachable():
            raise UserError(
                f"The {what} '{name}' is neither a local {kind} nor in the local cache, and the Hugging Face hub "
                f"cannot be reached; check the network and HF_HUB_OFFLINE, or give a local {kind}"
            )


def check_device(name: str, *, needs_gpu: bool = False) -> None:
    """Refuse (``UserError``) a device as ``find_device``, and a machine without a GPU that is needed."""
    if needs_gpu and find_device("auto").type == "cpu":
        raise UserError(
            "The study needs a GPU (needs_gpu), but this machine has none; run it on a machine with a GPU, or describe "
            "it under another --name without needs_gpu"
        )
    if name not in {"auto", "cpu"}:
        find_device(name)


def find_device(name: str) -> "torch.device":
    """The device with this name, or the best one for ``auto``; ``UserError`` if this machine does not have it."""
    import torch

    mps = torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if mps else "cpu")
    device, devices = torch.device(name), torch.cuda.device_count()
    if device.type == "mps" and not mps:
        raise UserError("The device 'mps' is requested, but this machine has none; use device: auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= devices:
        raise UserError(
            f"The device '{name}' is requested, but this machine has {devices} CUDA devices; use device: auto or cpu"
        )
    return device
