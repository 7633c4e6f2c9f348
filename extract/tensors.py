"""Shapes of the tensors of a checkpoint, read from the headers of the weights files, and checks of its configuration.

Importing this module loads neither torch nor transformers. Which files are read is decided in ``extract.checkpoints``.
"""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from extract.checkpoints import Checkpoint
from extract.hub import summarise_error
from storage.errors import UserError

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
"""Count that such a field may always hold, however small the weights are."""

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
    """Read the shape of every tensor of the weights, by name, from the headers of the files; no tensor is read.

    ``UserError`` if a file is not valid safetensors, or its header is larger than ``HEADER_BYTES``; if two files hold
    the same tensor, or weights are quantised in a way that the configuration does not describe.
    """
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
    """Refuse (``UserError``) a configuration whose sizes are of a wrong type or contradict the tensors.

    ``shapes`` is None if they are not known: then only types are checked.
    """
    for prefix, part in _iterate_parts(config):
        for field, value in part.items():
            if why := _find_field_error(field, value) or _find_size_error(field, value, shapes):
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


def _find_size_error(field: str, value: object, shapes: Shapes | None) -> str | None:
    """What is wrong with a number that is too large for the weights; None if nothing is."""
    if shapes is None or not isinstance(value, int) or field in POSITIONS:
        return None
    longest = max((length for shape in shapes.values() for length in shape), default=0)
    if field in LAYERS and value > len(shapes):
        return f"is {value}, but the weights have {len(shapes)} tensors"
    if field in (*WIDTHS, *HEADS, *KV_HEADS, "head_dim", "vocab_size") and value > longest:
        return f"is {value}, but the longest axis of a tensor of the weights has length {longest}"
    if field.startswith(("num_", "n_")) and field.endswith(COUNTS) and value > max(longest, len(shapes), COUNTED):
        return f"is {value}, more than the weights can hold"
    return None


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def count_elements(shapes: Shapes) -> int:
    """Number of elements of all tensors of these shapes."""
    return sum(prod(shape) for shape in shapes.values())
