"""Extraction: a captured forward pass against a plain one, and writing a sequence against writing its bytes.

Holds the benchmarks ``extraction.*``. What does not belong here: real models and texts; random ones take as long.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from benchmarks.measure import Benchmark, Result, alternate, compare
from extract.capture import capture
from storage.arrays import TENSORS
from storage.sequences import SequenceStore

VOCABULARY = 1024


def captured(
    *, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, batch: int, repeats: int
) -> list[Result]:
    """One batch through a random Llama in float32: with capture, and the base model alone through SDPA."""
    torch.manual_seed(0)
    width = heads * head_dim
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=width * 11 // 4,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=context,
        ),
        attn_implementation="sdpa",
    ).eval()
    tokens = torch.randint(VOCABULARY, (batch, context))

    def plain() -> None:
        with torch.inference_mode():
            model.base_model(input_ids=tokens, use_cache=False)

    seconds = alternate(lambda: capture(model, tokens, [context - 1]), plain, repeats=repeats)
    sizes = {
        "layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "context": context, "batch": batch
    }  # fmt: skip
    ours = ("a batch captured: last-query weights and value states of every layer", seconds[:, 0])
    return [compare("extraction.capture", "cost", ours, ("the plain SDPA forward pass", seconds[:, 1]), sizes=sizes)]


def written(*, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, repeats: int) -> list[Result]:
    """One sequence into the tensor store, compressed, against its bytes into one file; neither waits for the disk.

    Both write over what they wrote in the round before.
    """
    sizes = {"sequence": 1, "query": 1, "layer": layers, "head": heads, "kv_head": kv_heads}
    sizes |= {"key": context, "head_dim": head_dim}
    arrays = _sequence(sizes)
    size = sum(array.nbytes for array in arrays.values())
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = SequenceStore.resume(folder / "tensors.zarr", TENSORS, sizes, {"study": "written"})

        def plain() -> None:
            with (folder / "plain").open("wb") as file:
                for array in arrays.values():
                    file.write(array.data)
                file.flush()

        seconds = alternate(lambda: store.write(0, arrays), plain, repeats=repeats)
        kept = store.bytes_on_disk() / size
    ours = ("one sequence written to the tensor store", seconds[:, 0])
    theirs = ("the same bytes written to one file and flushed", seconds[:, 1])
    note = f"{size / 2**20 / np.median(seconds[:, 0]):.0f} MiB/s; {kept:.0%} of the bytes on disk"
    return [compare("extraction.write", "speed", ours, theirs, sizes=sizes | {"bytes": size}, note=note)]


def _sequence(sizes: dict[str, int]) -> dict[str, NDArray[np.generic]]:
    """The tensors of one sequence: softmax rows and normal value states."""
    rng = np.random.default_rng(0)
    shapes = {spec.name: spec.shape(sizes)[1:] for spec in TENSORS}
    attention = np.exp(2 * rng.standard_normal(shapes["attention"], dtype=np.float32))
    return {
        "attention": attention / attention.sum(-1, keepdims=True),
        "values": rng.standard_normal(shapes["values"], dtype=np.float32),
        "tokens": rng.integers(0, VOCABULARY, shapes["tokens"], dtype=np.int32),
        "first_key": np.zeros(shapes["first_key"], np.int32),
        "query_position": np.full(shapes["query_position"], sizes["key"] - 1, np.int32),
    }


BENCHMARKS = (
    Benchmark(
        "extraction.capture",
        full=partial(captured, layers=8, heads=8, kv_heads=4, head_dim=64, context=1024, batch=2, repeats=7),
        small=partial(captured, layers=2, heads=4, kv_heads=2, head_dim=16, context=64, batch=2, repeats=3),
    ),
    Benchmark(
        "extraction.write",
        full=partial(written, layers=32, heads=32, kv_heads=32, head_dim=128, context=1024, repeats=5),
        small=partial(written, layers=2, heads=4, kv_heads=2, head_dim=16, context=64, repeats=3),
    ),
)
