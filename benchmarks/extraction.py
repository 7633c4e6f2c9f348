"""Extraction: captured forward passes against plain ones, in time and memory, and the tensor store against one file.

Holds the benchmarks ``extraction.*``. Models are random, and compute in bfloat16 on a CUDA device if there is one, else
in float32 on the CPU.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from benchmarks.measure import Benchmark, Result, alternate, compare
from extract.attention import Weighting, compute_head_patterns
from extract.batches import Batch, read_batches
from extract.capture import Attention, probe
from extract.settings import ExtractionSettings
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS, build_tensor_specs
from storage.zarr.sequences import SequenceStore

VOCABULARY = 1024


class Reading:
    """A random Llama with SDPA, and the batch that it reads repeatedly."""

    def __init__(
        self, *, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, batch: int, rounds: int = 4
    ) -> None:
        torch.manual_seed(0)
        self.cuda = torch.cuda.is_available()
        self.model = make_model(
            layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, context=context, cuda=self.cuda
        )
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, (batch, context), np.int32)
        self.tokens = np.tile(tokens, (rounds, 1))
        self.batch = batch
        self.settings = ExtractionSettings.model_validate(
            {"model": "random", "corpus": "embedded", "context_length": context, "sequences": len(self.tokens)}
            | {"batch_size": batch}
        )
        self.attention: Attention = probe(self.model, torch.from_numpy(tokens[:1, :64]))

    def run_forward(self) -> None:
        """One forward pass of the base model."""
        run_forward(self.model, torch.from_numpy(self.tokens[: self.batch]))

    def read_batches(self) -> Iterator[Batch]:
        """Iterate over all batches as extraction reads them, lazily."""
        missing = range(len(self.tokens))
        return read_batches(self.model, self.attention, self.tokens, missing, self.settings, self.batch)

    def finish(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()


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


def measure_capture(
    *,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    context: int,
    batch: int,
    repeats: int,
    together: int = 1,
) -> list[Result]:
    """Batches through a random Llama: as extraction reads them, and through the base model alone with SDPA.

    Each time is that of ``together`` batches, of which only the last is waited for.
    """
    sizes = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    sizes |= {"context": context, "batch": batch}
    reading = Reading(**sizes, rounds=2 + (repeats + 1) * together)
    read = reading.read_batches()
    for _ in range(2):  # creates the two buffers
        next(read)

    def read_captured() -> None:
        for _ in range(together):
            last = next(read)
        last.captured.wait()
        reading.finish()

    def read_plainly() -> None:
        for _ in range(together):
            reading.run_forward()

    seconds = alternate(read_captured, read_plainly, repeats=repeats)
    what = ("batches captured: last-query weights and value states of every layer", seconds[:, 0])
    against = ("the plain SDPA forward pass", seconds[:, 1])
    note = f"{reading.attention.dtype} on {reading.model.device.type}".removeprefix("torch.")
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


def measure_writes(
    *, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, repeats: int
) -> list[Result]:
    """Writing a sequence to a new tensor store against writing its bytes to a new file, until all data is on the disk.

    Once with the value states of a float32 model, and once with those of a bfloat16 model, which are compressed.
    """
    sizes = {"sequence": 1, "query": 1, "layer": layers, "head": heads, "kv_head": kv_heads}
    sizes |= {"key": context, "head_dim": head_dim}
    return [_measure_write(computed, sizes, repeats) for computed in ("float32", "bfloat16")]


def _measure_write(computed: str, sizes: dict[str, int], repeats: int) -> Result:
    arrays = _draw_sequence(sizes)
    if computed == "bfloat16":
        arrays["values"].view(np.uint32)[:] &= 0xFFFF0000
    size = sum(array.nbytes for array in arrays.values())
    specs = build_tensor_specs(values="float32", computed=computed)

    def prepare_file(folder: Path) -> Callable[[], None]:
        def write() -> None:
            with (folder / "plain").open("wb") as file:
                file.writelines(array.data for array in arrays.values())

        return write

    def prepare_store(folder: Path) -> Callable[[], None]:
        store = SequenceStore.resume(LocalPlace(folder / "tensors.zarr"), specs, sizes, {"study": "written"})
        return lambda: store.write(0, arrays)

    with TemporaryDirectory() as name:
        disk = _Disk(Path(name))
        contenders = (partial(disk.write, "store", prepare_store), partial(disk.write, "plain", prepare_file))
        seconds = alternate(*contenders, repeats=repeats, clock=disk.read_clock)
        kept = LocalPlace(disk.folder / "store").measure_size() / size
    cached = np.median(np.array(disk.cached["plain"][1:]) / np.array(disk.cached["store"][1:]))
    return compare(
        "extraction.write",
        "speed",
        (f"a sequence of a {computed} model written to the tensor store", seconds[:, 0]),
        ("the same bytes written to one file", seconds[:, 1]),
        sizes=sizes | {"bytes": size},
        target=0.7,
        note=f"{size / 2**20 / np.median(seconds[:, 0]):.0f} MiB/s until it is on the disk, {kept:.0%} of the bytes; "
        f"ratio {cached:.2f} without waiting for the disk",
    )


class _Disk:
    """Contenders that write to a disk, and a clock that is stopped while their earlier output is removed.

    Both therefore write to memory that the system has just freed; memory that was never used before is slower.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cached: dict[str, list[float]] = {"store": [], "plain": []}
        """Seconds until the system had accepted the bytes, by contender."""
        self._paused = 0.0

    def read_clock(self) -> float:
        """Seconds, without the time in which the clock was stopped."""
        return time.perf_counter() - self._paused

    def write(self, name: str, prepare: Callable[[Path], Callable[[], None]]) -> None:
        """Call the writer that ``prepare`` returns for an empty folder, and wait until its output is on the disk."""
        folder, start = self.folder / name, time.perf_counter()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write = prepare(folder)
        documents = set(folder.rglob("*"))
        _sync(documents)
        self._paused += time.perf_counter() - start
        start = time.perf_counter()
        write()
        self.cached[name].append(time.perf_counter() - start)
        _sync(set(folder.rglob("*")) - documents)


def _sync(files: set[Path]) -> None:
    """Wait until files, or folders, are on the disk."""
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _draw_sequence(sizes: dict[str, int]) -> dict[str, NDArray[np.generic]]:
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
        "learned_sink": np.zeros(shapes["learned_sink"], np.float32),
        "batch": np.ones((), np.int32),
    }


SMALL = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "context": 64, "batch": 2}


def _select_sizes() -> dict[str, int]:
    """Sizes of the model and its batches; on a CUDA device, the width of a 7B model."""
    if torch.cuda.is_available():
        return {"layers": 8, "heads": 32, "kv_heads": 32, "head_dim": 128, "context": 1024, "batch": 8}
    return {"layers": 8, "heads": 8, "kv_heads": 4, "head_dim": 64, "context": 1024, "batch": 2}


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
        full=lambda: measure_capture(**_select_sizes(), repeats=7, together=2),
        small=partial(measure_capture, **SMALL, repeats=3),
    ),
    Benchmark(
        "extraction.write",
        full=partial(measure_writes, layers=32, heads=32, kv_heads=32, head_dim=128, context=1024, repeats=15),
        small=partial(measure_writes, layers=2, heads=4, kv_heads=2, head_dim=16, context=64, repeats=3),
    ),
)
