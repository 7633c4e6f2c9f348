"""Every architecture that is read from GGUF, and every entry and tensor that GGUF knows in it.

``python -m tests.extract.gguf_conversion`` tries them all, and prints how the files ended: read as the same model in
safetensors would be, or refused.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from gguf.constants import MODEL_TENSORS, TENSOR_NAMES, Keys
from numpy.typing import NDArray
from transformers import PreTrainedModel

from storage.errors import UserError
from tests.extract.gguf_files import (
    BIASED,
    WRITTEN,
    Entries,
    Sizes,
    Tensors,
    find_architecture,
    list_entries,
    list_tensors,
    make_model,
    write,
)
from tests.extract.tiny import VOCABULARY, compute_logits, read_logits

HARMLESS = {
    "context_length": "the limit alone",
    "rope.scaling.finetuned": "no scaling",
    "rope.scaling.original_context_length": "no scaling",
}
"""Entries that change nothing that is computed, and why; as the width of an MLP that no layer has, beside experts."""


@dataclass(frozen=True)
class Trial:
    """A file that differs in one thing from the plain one."""

    what: str
    entries: Entries
    tensors: Tensors
    model: PreTrainedModel | None = None
    """The model that it describes; None if transformers has no such model, or none of which this is known."""


def _turn(sizes: Sizes, part: str = "full_attention", **changed: Any) -> Sizes:
    """The field of the rotation with some changes, in one kind of layers if there are two."""
    rotation = sizes["rope_parameters"]
    own = {part: {**rotation[part], **changed}} if part in rotation else changed
    return {"rope_parameters": {**rotation, **own}}


def mean_entry(architecture: str, name: str) -> tuple[Any, Sizes | None]:
    """Another value of an entry, and the fields that say the same in transformers; None if there are none."""
    sizes = WRITTEN[architecture].sizes
    rotation = sizes.get("rope_parameters", {})
    if name == "rope.freq_base":
        return 777.0, _turn(sizes, rope_theta=777.0) if rotation else None
    if name == "rope.dimension_count":
        return 12, _turn(sizes, partial_rotary_factor=0.75) if "partial_rotary_factor" in rotation else None
    if name == "rope.dimension_sections" and architecture == "qwen35":
        return [1, 1, 2, 0], _turn(sizes, mrope_section=[1, 1, 2])
    if name == "rope.freq_base_swa" and architecture == "gemma3":
        return 777.0, _turn(sizes, "sliding_attention", rope_theta=777.0)
    if name in {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}:
        own = (name == "attention.layer_norm_epsilon") == (architecture in BIASED)
        return 0.5, {WRITTEN[architecture].epsilon: 0.5} if own else None
    fields: Mapping[str, tuple[Any, str, Any]] = {
        "attention.sliding_window": (8, "sliding_window", 8),
        "attention.scale": (0.125, "query_pre_attn_scalar", 64),
        "attn_logit_softcapping": (0.5, "attn_logit_softcapping", 0.5),
        "final_logit_softcapping": (0.5, "final_logit_softcapping", 0.5),
        "expert_used_count": (1, "num_experts_per_tok", 1),
    }
    value, field, meant = fields.get(name, (_invent(name), "", None))
    return value, {field: meant} if field in sizes else None


def _invent(name: str) -> Any:
    """A value that matters, of an entry that the architecture may not have."""
    if name.endswith("causal"):
        return False
    if name.endswith(("swin_norm", "weights_norm", "use_parallel_residual", "finetuned", "b_c_rms")):
        return True
    if name.endswith("type"):
        return "linear" if "scaling" in name else 2
    if name == "tensor_data_layout":
        return "other"
    if name.endswith(("pattern", "sections")):
        return [2, 1, 1, 0]
    numbers = ("scale", "factor", "bias", "kqv", "epsilon", "base", "alpha", "capping", "slow")
    return 1.75 if name.endswith(numbers) else 3 if name == "ssm.state_size" else 5


def list_trials(architecture: str) -> Iterator[Trial]:
    """The plain file, one for each entry, for each entry left out, for each further tensor, and for each left out."""
    model = make_model(architecture)
    entries, tensors = list_entries(architecture, model.config), list_tensors(architecture, model)
    yield Trial("plain", entries, tensors, model)
    if biases := WRITTEN[architecture].biases:
        biased = make_model(architecture, **biases)
        yield Trial("all biases", entries, list_tensors(architecture, biased), biased)
    groups = [group for name, group in vars(Keys).items() if not name.startswith("_")]
    known = {
        text.removeprefix("{arch}.") for group in groups for text in vars(group).values() if "{arch}." in str(text)
    }
    for name in sorted({*known, "rope.scale_linear", "an_entry_of_tomorrow"}):
        value, fields = mean_entry(architecture, name)
        harmless = name in HARMLESS or (name == "feed_forward_length" and "expert_count" in entries)
        meant = model if harmless else None if fields is None else make_model(architecture, **fields)
        yield Trial(f"entry {name} = {value}", {**entries, name: value}, tensors, meant)
    for name in entries:
        yield Trial(
            f"without entry {name}",
            {k: v for k, v in entries.items() if k != name},
            tensors,
            find_usual(architecture, name),
        )
    yield from list_tensor_trials(architecture, model, entries, tensors)


def find_usual(architecture: str, name: str) -> PreTrainedModel | None:
    """The model that a file without an entry describes, as llama.cpp reads it; None if it does not."""
    sizes = WRITTEN[architecture].sizes
    fields: Mapping[str, Sizes] = {
        "attention.key_length": {},
        "attention.value_length": {},
        "vocab_size": {},
        **({} if sizes.get("sliding_window") else {"attention.sliding_window": {}}),
        "rope.freq_base": _turn(sizes, rope_theta=1e4) if "rope_parameters" in sizes else {},
        "rope.dimension_count": _turn(sizes, partial_rotary_factor=1.0)
        if "partial_rotary_factor" in str(sizes)
        else {},
    }
    if architecture == "gemma2":
        caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096}
        fields |= {name: {field: value} for field, value in caps.items() for name in (field, f"attention.{field}")}
    if architecture == "gemma3":
        fields |= {"final_logit_softcapping": {"final_logit_softcapping": None}}
    if architecture == "bloom":
        fields |= {"context_length": {}, "feed_forward_length": {}}
    return make_model(architecture, **fields[name]) if name in fields else None


def untie(model: PreTrainedModel, head: NDArray[np.float32]) -> PreTrainedModel:
    """The model with a head of its own."""
    own = deepcopy(model)
    own.lm_head.weight = torch.nn.Parameter(torch.from_numpy(head))
    return own.eval()


def list_tensor_trials(
    architecture: str, model: PreTrainedModel, entries: Entries, tensors: Tensors
) -> Iterator[Trial]:
    """Files with one tensor more, of those that GGUF knows, or one less."""
    rng = np.random.default_rng(0)
    stems = {TENSOR_NAMES[tensor].format(bid=0) for tensor in MODEL_TENSORS[find_architecture(architecture)]}
    stems |= {
        "output",
        "blk.0.attn_sinks",
        "blk.0.attn_q_norm",
        "blk.0.attn_rot_embd",
        "rope_freqs",
        "rope_factors_long",
        "blk.2.attn_q",
    }
    for name in sorted(f"{stem}.{suffix}" for stem in stems for suffix in ("weight", "bias", "scale")):
        if name not in tensors:
            head = name == "output.weight"
            more = rng.normal(0, 0.15, (VOCABULARY, 64) if head else 64).astype(np.float32)
            yield Trial(
                f"further tensor {name}", entries, {**tensors, name: more}, untie(model, more) if head else None
            )
    for name in tensors:
        own = deepcopy(model) if name == "output.weight" else None
        if own is not None:
            own.lm_head.weight = own.get_input_embeddings().weight
        yield Trial(f"without tensor {name}", entries, {k: v for k, v in tensors.items() if k != name}, own)


def judge(trial: Trial, architecture: str, folder: Path) -> tuple[str, str]:
    """How a file ended: ``same``, ``refused`` or ``silent``, and what was said of it or how far it was off."""
    path = write(folder / "tried.gguf", architecture, trial.entries, trial.tensors)
    try:
        found = read_logits(path)
    except UserError as error:
        return "refused", str(error).replace(str(path), "FILE")
    finally:
        path.unlink()
    if trial.model is None:
        return "silent", "read, though transformers has no such model"
    expected = compute_logits(trial.model)
    off = float((found - expected).abs().max() / expected.abs().max())
    return "same" if off <= 1e-5 else "silent", f"{off:.1e}"


def try_everything(architecture: str, folder: Path) -> tuple[Counter[str], list[str]]:
    """How many files of an architecture ended in which way, and those that were read as another model."""
    ends: Counter[str] = Counter()
    silent = []
    for trial in list_trials(architecture):
        end, said = judge(trial, architecture, folder)
        ends[end] += 1
        silent += [f"{trial.what}: {said}"] * (end == "silent")
    return ends, silent


def main() -> None:
    """Write the table of docs/inputs.md to standard output."""
    sys.stdout.write(
        "| architecture | files | read as in safetensors | refused | another model |\n|---|---|---|---|---|\n"
    )
    for architecture in WRITTEN:
        with TemporaryDirectory() as folder:
            ends, silent = try_everything(architecture, Path(folder))
        counts = " | ".join(str(ends[end]) for end in ("same", "refused", "silent"))
        sys.stdout.write(f"| {architecture} | {ends.total()} | {counts} |\n" + "".join(f"{line}\n" for line in silent))


if __name__ == "__main__":
    main()
