"""A random model that reads batches, with or without capture, and the peak memory of both.

Holds the two contenders of ``extraction.capture`` and ``extraction.memory``. The model computes in bfloat16 on a CUDA
device if there is one, else in float32 on the CPU.

``python -m benchmarks.reading WAY SIZES`` prints the peak memory of one way, in bytes: each is measured in a separate
process, because memory that was used before is not always returned to the system.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from extract.batches import Batch, estimate_batch_bytes, read_batches
from extract.buffers import Buffers
from extract.capture import Attention, capture, probe
from extract.settings import ExtractionSettings

VOCABULARY = 1024

Way = Literal["plain", "capture", "loop"]
"""A forward pass; a captured one; four in the loop of extraction, where one batch waits while the next is read."""


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

    @property
    def captured_bytes(self) -> int:
        """Bytes of the captured tensors of one batch."""
        return estimate_batch_bytes(
            self.attention.layers,
            batch=self.batch,
            queries=1,
            keys=self.settings.context_length,
            dtype=self.attention.dtype,
        )

    def run_forward(self) -> None:
        """One forward pass of the base model."""
        run_forward(self.model, torch.from_numpy(self.tokens[: self.batch]))

    def run_capture(self) -> None:
        """One forward pass, captured into its own buffers."""
        tokens, length = torch.from_numpy(self.tokens[: self.batch]), self.settings.context_length
        buffers = Buffers(
            self.attention.layers,
            batch=self.batch,
            queries=1,
            keys=length,
            dtype=self.attention.dtype,
            pin=self.cuda,
        )
        capture(self.model, self.attention, tokens, [length - 1], buffers).wait()
        self.finish()

    def read_batches(self) -> Iterator[Batch]:
        """Iterate over all batches as extraction reads them, lazily."""
        missing = range(len(self.tokens))
        return read_batches(self.model, self.attention, self.tokens, missing, self.settings, self.batch)

    def finish(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def measure_peak(self, way: Way) -> int:
        """Peak memory of one way in addition to the model, in bytes: of the device, or on the CPU of this process."""
        self._reset_peak()
        before = self._read_memory("VmRSS")
        if way == "loop":
            held: Batch | None = None
            for batch in self.read_batches():
                if held is not None:
                    held.captured.wait()
                held = batch
        else:
            (self.run_forward if way == "plain" else self.run_capture)()
        self.finish()
        return self._read_memory("VmHWM") - before

    def _reset_peak(self) -> None:
        """Reset the peak memory."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def _read_memory(self, what: Literal["VmRSS", "VmHWM"]) -> int:
        """Current (VmRSS) or peak (VmHWM) memory, in bytes."""
        if self.cuda:
            return torch.cuda.memory_allocated() if what == "VmRSS" else torch.cuda.max_memory_allocated()
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


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


def measure_peaks(sizes: Mapping[str, int]) -> dict[str, int]:
    """Peak memory of every way in bytes, each in its own process, and ``batch``: captured bytes of one batch."""
    peaks: dict[str, int] = {}
    for way in get_args(Way):
        command = [sys.executable, "-m", "benchmarks.reading", way, json.dumps(dict(sizes))]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        peaks |= {way: said["peak"], "batch": said["batch"]}
    return peaks


if __name__ == "__main__":
    way_to_read: Way = next(way for way in get_args(Way) if way == sys.argv[1])
    reading = Reading(**json.loads(sys.argv[2]))
    print(json.dumps({"peak": reading.measure_peak(way_to_read), "batch": reading.captured_bytes}))
