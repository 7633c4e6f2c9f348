"""Extraction: captured forward passes against plain ones, and the tensor store against one file.

Holds the benchmarks ``extraction.*``. Models are random, and compute in bfloat16 on a CUDA device if there is one, else
in float32 on the CPU.
"""

import os
import shutil
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from benchmarks.measure import Benchmark, Result, alternate, compare
from extract.capture.attention import Weighting, compute_head_patterns
from extract.capture.batches import read_batches
from extract.capture.one_pass import probe
from extract.settings import SYNTHETIC, ExtractionSettings
from extract.synthetic import draw_sequence, plant_heads
from storage.files.places import LocalPlace
from storage.zarr.arrays import build_tensor_specs
from storage.zarr.sequences import SequenceStore

VOCABULARY = 1024


def run_forward(model: PreTrainedModel, tokens: torch.Tensor) -> None:
    """One plain SDPA forward pass of the base model, until the device has ended it."""
    with torch.inference_mode():
        model.base_model(input_ids=tokens.to(model.device, torch.long), use_cache=False)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def make_model(*, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, cuda: bool) -> PreTrainedModel:
    """A random Llama with SDPA, its MLP as wide as that of LLaMA-2."""
    width = heads * head_dim
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    with torch.device("cuda" if cuda else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    model.eval()
    return model


def measure_capture(*, context: int, batch: int, repeats: int, together: int = 1, **shape: int) -> list[Result]:
    """Batches through a random Llama: as extraction reads them, and through the base model alone with SDPA.

    Each time is that of ``together`` batches, of which only the last is waited for.
    """
    torch.manual_seed(0)
    model = make_model(**shape, context=context, cuda=torch.cuda.is_available())
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (batch, context), np.int32)
    every = np.tile(tokens, (2 + (repeats + 1) * together, 1))
    given: dict[str, Any] = {"model": "random", "corpus": "embedded", "context_length": context}
    settings = ExtractionSettings.model_validate(given | {"sequences": len(every), "batch_size": batch})
    attention = probe(model, torch.from_numpy(tokens[:1, :64]))
    read = read_batches(model, attention, every, range(len(every)), settings, batch)
    for _ in range(2):  # creates the two buffers
        next(read)

    def read_captured() -> None:
        for _ in range(together):
            last = next(read)
        last.captured.wait()
        if model.device.type == "cuda":
            torch.cuda.synchronize()

    def read_plainly() -> None:
        for _ in range(together):
            run_forward(model, torch.from_numpy(tokens))

    seconds = alternate(read_captured, read_plainly, repeats=repeats)
    what = ("batches captured: last-query weights and value states of every layer", seconds[:, 0])
    against = ("the plain SDPA forward pass", seconds[:, 1])
    note = f"{attention.dtype} on {model.device.type}".removeprefix("torch.")
    sizes = shape | {"context": context, "batch": batch}
    return [compare("extraction.capture", "cost", what, against, sizes=sizes, target=1.1, note=note)]


def measure_patterns(*, heads: int, kv_heads: int, head_dim: int, context: int, repeats: int) -> list[Result]:
    """What the heads of one layer look at, and the plain SDPA forward pass of a model of one layer, in float32.

    Both in processor seconds; of the tokens, as many pairs are equal as in a text (0.6 %).
    """
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "context": context}
    model, rng = make_model(layers=1, **sizes, cuda=False), np.random.default_rng(0)
    tokens = torch.from_numpy((4 * (VOCABULARY / 4) ** rng.random((1, context))).astype(np.int64))
    query, key = torch.randn(1, heads, context, head_dim), torch.randn(1, kv_heads, context, head_dim)
    with torch.inference_mode():
        seconds = alternate(
            lambda: compute_head_patterns(query, key, tokens, Weighting(None, head_dim**-0.5, None, None)),
            lambda: run_forward(model, tokens),
            repeats=repeats,
            clock=time.process_time,
        )
    what = ("what the heads of a layer look at", seconds[:, 0])
    against = ("the plain SDPA forward pass of a model of one layer", seconds[:, 1])
    return [compare("extraction.patterns", "cost", what, against, sizes=sizes, target=0.25)]


def measure_writes(*, layers: int, heads: int, head_dim: int, context: int, repeats: int) -> list[Result]:
    """A sequence written to a new tensor store against its bytes written to a new file, until both are on the disk.

    Of a float32 model, and of a bfloat16 model, whose value states are compressed.
    """
    drawn = {"layers": layers, "heads": heads, "kv_heads": heads, "head_dim": head_dim}
    given = {"model": SYNTHETIC, "context_length": context, "sequences": 1, "synthetic": drawn}
    settings = ExtractionSettings.model_validate(given)
    arrays, results = draw_sequence(settings, plant_heads(settings), 0), []
    sizes = {"sequence": 1, "query": 1, "layer": layers, "head": heads, "kv_head": heads, "key": context}
    sizes |= {"head_dim": head_dim}
    for computed in ("float32", "bfloat16"):
        if computed == "bfloat16":
            arrays["values"].view(np.uint32)[:] &= 0xFFFF0000
        with TemporaryDirectory() as folder:
            ways = [partial(_write_store, Path(folder), computed, sizes, arrays), partial(_write_file, folder, arrays)]
            seconds = alternate(*ways, repeats=repeats)
        what = (f"a sequence of a {computed} model written to the tensor store", seconds[:, 0])
        against = ("the same bytes written to one file", seconds[:, 1])
        written = sizes | {"bytes": sum(array.nbytes for array in arrays.values())}
        results.append(compare("extraction.write", "speed", what, against, sizes=written, target=0.7))
    return results


def _write_store(folder: Path, computed: str, sizes: dict[str, int], arrays: dict[str, Any]) -> None:
    """Write a sequence of a model that computes in this type."""
    shutil.rmtree(folder / "tensors.zarr", ignore_errors=True)
    specs = build_tensor_specs(values="float32", computed=computed)
    SequenceStore.resume(LocalPlace(folder / "tensors.zarr"), specs, sizes, {"study": "written"}).write(0, arrays)
    os.sync()


def _write_file(folder: str, arrays: dict[str, Any]) -> None:
    """Write the same bytes."""
    plain = Path(folder, "plain")
    plain.unlink(missing_ok=True)
    with plain.open("wb") as file:
        file.writelines(array.data for array in arrays.values())
    os.sync()


SMALL = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "context": 64, "batch": 2}
FULL = {"layers": 8, "heads": 8, "kv_heads": 4, "head_dim": 64, "context": 1024, "batch": 2}
OF_7B = FULL | {"heads": 32, "kv_heads": 32, "head_dim": 128, "batch": 8}
"""Sizes of the model and its batches; on a CUDA device, the width of a 7B model."""

BENCHMARKS = (
    Benchmark(
        "extraction.patterns",
        full=lambda: [
            *measure_patterns(heads=9, kv_heads=3, head_dim=64, context=1024, repeats=15),  # SmolLM2
            *measure_patterns(heads=32, kv_heads=32, head_dim=128, context=1024, repeats=3),  # LLaMA-2-7B
        ],
        small=partial(measure_patterns, heads=2, kv_heads=1, head_dim=16, context=64, repeats=3),
    ),
    Benchmark(
        "extraction.capture",
        full=lambda: measure_capture(**OF_7B if torch.cuda.is_available() else FULL, repeats=7, together=2),
        small=partial(measure_capture, **SMALL, repeats=3),
    ),
    Benchmark(
        "extraction.write",
        full=partial(measure_writes, layers=32, heads=32, head_dim=128, context=1024, repeats=7),
        small=partial(measure_writes, layers=2, heads=2, head_dim=16, context=64, repeats=3),
    ),
)
