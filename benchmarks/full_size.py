"""A whole run of one of the paper's models, with random weights: ``python -m benchmarks.full_size MODEL``.

In full size on a CUDA device with enough memory, elsewhere narrowed (the same numbers of layers and tokens; width,
heads and vocabulary divided), which the table states. Random weights take as long as trained ones.
"""

import argparse
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import GemmaConfig, LlamaConfig, MistralConfig, PreTrainedConfig

from benchmarks.__main__ import WIDTH, build_table
from benchmarks.measure import Result, compare
from benchmarks.run import VOCABULARY, describe_study, measure_forward, run_steps, write_checkpoint
from dagster_project.study.home import Home

MODELS: Mapping[str, tuple[type[PreTrainedConfig], Mapping[str, Any]]] = {
    "llama-2-7b": (
        LlamaConfig,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        },
    ),
    "mistral-7b": (
        MistralConfig,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768,
            "sliding_window": 4096, "rms_norm_eps": 1e-5,
        },
    ),
    "gemma-7b": (
        GemmaConfig,
        {
            "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192,
        },
    ),
}  # fmt: skip
"""The paper's models, as in their ``config.json`` on the hub."""

NARROWED = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
"""Settings that are divided if there is not enough memory for the full model."""

ROOM = 48 * 2**30
"""Free bytes of a CUDA device from which models of 7 to 9 billion parameters in bfloat16 are run in full size."""


def measure(name: str, *, divide: int, layers: int | None, sequences: int, context_length: int) -> list[Result]:
    """Seconds of every step of a study against those of the plain forward pass of its sequences."""
    config, settings = MODELS[name]
    narrow = {key: max(value // divide, 1) if key in NARROWED else value for key, value in settings.items()}
    narrow |= {"vocab_size": max(narrow["vocab_size"], VOCABULARY)}
    narrow |= {} if layers is None else {"num_hidden_layers": layers}
    sizes = {"context_length": context_length, "sequences": sequences}
    with TemporaryDirectory() as folder:
        write_checkpoint(config(**narrow), Path(folder, "model"), dtype=torch.bfloat16)
        study = describe_study(str(Path(folder, "model")), sizes | {"dtype": "bfloat16"})
        forward, steps = measure_forward(study), run_steps(Home(Path(folder, "data")), study)
    forward_pass = ("the plain forward pass of all sequences in one batch", np.array([forward[0]]))
    shape = sizes | {"divided_by": divide, "layers": narrow["num_hidden_layers"]}
    return [
        compare(f"full_size.{name}.{step}", "cost", (step, np.array([wall])), forward_pass, sizes=shape)
        for step, (wall, _) in steps.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the model that the arguments name; returns the exit code."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_size", description=__doc__.partition("\n")[0])
    parser.add_argument("name", metavar="MODEL", nargs="?", choices=MODELS, default="llama-2-7b")
    whole = cuda and torch.cuda.mem_get_info()[0] >= ROOM
    parser.add_argument("--divide", type=int, default=1 if whole else 8, help="divisor of width and heads")
    parser.add_argument("--layers", type=int, help="number of layers (default: all)")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--context-length", type=int, default=1024)
    results = measure(**vars(parser.parse_args(arguments)))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(build_table(results))
    device = f", of the GPU {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if cuda else ""
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB{device}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
