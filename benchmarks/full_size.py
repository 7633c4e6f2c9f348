"""The whole pipeline on the exact configurations of the paper's models, with random weights: seconds and peak memory.

``python -m benchmarks.full_size`` runs every model in a separate process: in full size on a CUDA device with enough
memory, elsewhere narrowed (same numbers of layers and tokens; width, heads and vocabulary divided), which the table
states. Random weights take as long as trained ones.
"""

import argparse
import json
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import GemmaConfig, LlamaConfig, MistralConfig, PreTrainedConfig

from benchmarks.checkpoints import LLAMA_2_7B, VOCABULARY, write_checkpoint
from benchmarks.measure import alternate, describe_machine
from benchmarks.reading import run_forward
from benchmarks.run import run_steps
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from extract import models
from extract.batches import choose_batch_size
from extract.buffers import Buffers
from extract.capture import capture, probe
from extract.extraction import extract
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS, build_tensor_specs
from storage.zarr.sequences import SequenceStore

MODELS: Mapping[str, tuple[type[PreTrainedConfig], Mapping[str, Any]]] = {
    "llama-2-7b": (LlamaConfig, LLAMA_2_7B),
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

STAGES = ("forward", "capture", "write", "extraction", "metrics", "summaries", "landing", "report")
"""Columns of the table, in seconds per sequence: the plain forward pass; the captured one; writing the captured
tensors; extraction, in which the latter two overlap, with the checks at its end; and the later steps."""


@dataclass
class Measurement:
    """Time and memory of one model."""

    model: str
    device: str
    divided_by: int
    parameters: int
    sequences: int
    context_length: int
    batch: int
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage, for one sequence."""
    load: float = 0.0
    """Seconds until the first batch: hashing and loading the model, choosing the text, probing."""
    device_bytes: dict[str, int] = field(default_factory=dict)
    """Peak of the CUDA device during the plain forward pass and during capture."""
    host_bytes: int = 0
    """Peak resident memory of the process."""
    stored_bytes: int = 0
    """Size of the tensor store, for one sequence."""


def measure(name: str, *, divide: int, layers: int | None, sequences: int, context_length: int) -> Measurement:
    """Run one model through the whole pipeline.

    Parameters
    ----------
    name
        One of ``MODELS``.
    divide
        Divisor of the settings in ``NARROWED``; 1 for the full model.
    layers
        Number of layers, if not all.
    sequences, context_length
        Sizes of the study.
    """
    with TemporaryDirectory() as folder:
        checkpoint, text = Path(folder, "model"), Path(folder, "text.txt")
        config = _narrow(name, divide=divide, layers=layers)
        parameters = write_checkpoint(config, checkpoint, dtype=torch.bfloat16)
        text.write_text(_draw_words(sequences * context_length), encoding="utf-8")
        study = Study.model_validate(
            {
                "model": str(checkpoint),
                "corpus": {"id": str(text), "pack": True},
                "context_length": context_length,
                "sequences": sequences,
                "dtype": "bfloat16",
            }
        )
        description = models.describe(study.select_extraction())
        done = Measurement(name, str(description.device), divide, parameters, sequences, context_length, batch=0)
        _measure_passes(study, description, done)
        _run_pipeline(Home(Path(folder, "data")), name, study, done)
        done.host_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return done


def _narrow(name: str, *, divide: int, layers: int | None) -> PreTrainedConfig:
    """The configuration of a model, narrowed and cut."""
    config, settings = MODELS[name]
    narrow = {key: max(value // divide, 1) if key in NARROWED else value for key, value in settings.items()}
    narrow["vocab_size"] = max(narrow["vocab_size"], VOCABULARY)
    return config(**narrow | ({} if layers is None else {"num_hidden_layers": layers}))


def _draw_words(count: int) -> str:
    """``count`` words drawn at random from a few hundred, a hundred to a line."""
    generator = random.Random(0)
    stems = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 8))) for _ in range(400)]
    return "\n".join(" ".join(generator.choices(stems, k=100)) for _ in range(count // 100 + 1))


def _measure_passes(study: Study, description: models.Description, done: Measurement) -> None:
    """Measure the plain SDPA forward pass of one batch, and the same with capture."""
    model = models.load(description)
    tokens = torch.randint(VOCABULARY, (1, done.context_length), generator=torch.Generator().manual_seed(0))
    attention = probe(model, tokens[:, :64])
    batch = choose_batch_size(study.select_extraction(), attention, description.device)
    tokens = tokens.expand(batch, -1).contiguous()
    buffers = Buffers(
        attention.layers, batch=batch, queries=1, keys=done.context_length, dtype=attention.dtype,
        pin=description.device.type == "cuda",
    )  # fmt: skip

    def run_capture() -> None:
        capture(model, attention, tokens, [done.context_length - 1], buffers).wait()

    done.batch = batch
    forward = partial(run_forward, model, tokens)
    for stage, contender in (("forward", forward), ("capture", run_capture)):
        done.device_bytes[stage] = _measure_device_peak(contender, description.device)
    seconds = alternate(run_capture, forward, repeats=3).min(axis=0) / batch
    done.seconds |= {"forward": seconds[1], "capture": seconds[0]}


def _measure_device_peak(contender: Callable[[], None], device: torch.device) -> int:
    """Peak memory of a CUDA device while ``contender`` runs, in bytes; 0 on other devices."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    contender()
    return int(torch.cuda.max_memory_allocated(device))


def _run_pipeline(home: Home, name: str, study: Study, done: Measurement) -> None:
    """Run every step of the study, timed."""
    home.prepare()
    _extract(home, name, study, done)
    done.seconds["write"] = _write(home, name)
    steps = run_steps(home, study, name)
    tables = [asset.name for asset in SUMMARIES if asset.name in steps]
    stages = {"metrics": ["selection_metrics"], "summaries": tables, "landing": ["warehouse"], "report": ["report"]}
    done.seconds |= {
        stage: sum(steps[asset][0] for asset in assets) / done.sequences for stage, assets in stages.items()
    }


def _extract(home: Home, name: str, study: Study, done: Measurement) -> None:
    """Extract the study, timed from its first batch on."""
    start, ready = time.perf_counter(), 0.0

    def mark_ready(*_: object) -> None:
        nonlocal ready
        ready = time.perf_counter()

    report = extract(study.select_extraction(), study=name, path=home.tensors(name), before=mark_ready)
    done.load, done.stored_bytes = ready - start, report.bytes // done.sequences
    done.seconds["extraction"] = (time.perf_counter() - ready) / done.sequences


def _write(home: Home, name: str) -> float:
    """Seconds to write the tensors of one sequence from memory to a second store."""
    source = SequenceStore.open(home.tensors(name), TENSORS)
    specs = build_tensor_specs(
        values=source.provenance["settings"]["values"], computed=source.provenance["settings"]["dtype"]
    )
    target = SequenceStore.resume(
        LocalPlace(home.root / "copy.zarr"), specs, source.sizes, source.provenance, source.layers
    )
    seconds = []
    for sequence in range(source.sizes["sequence"]):
        arrays = {key: source.read(key, sequence) for key in target.specs if key != "finished"}
        start = time.perf_counter()
        target.write(sequence, arrays)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the models that the arguments select; returns the exit code."""
    parser = _build_parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.models) - MODELS.keys():
        parser.error(f"there is no model '{', '.join(sorted(unknown))}'; choose from: {', '.join(MODELS)}")
    divide = options.divide or (1 if _has_room() else 8)
    options_of_run = {"divide": divide, "layers": options.layers, "sequences": options.sequences}
    options_of_run["context_length"] = options.context_length
    done = []
    for name in options.models or MODELS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as process:  # each model has its own peak memory
            done.append(process.submit(measure, name, **options_of_run).result())
    Console(width=None if sys.stdout.isatty() else 200).print(_build_table(done))
    if options.out:
        saved = {"machine": describe_machine(), "models": [asdict(measured) for measured in done]}
        options.out.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_size", description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODELS)} (default: all)")
    parser.add_argument("--divide", type=int, help="divisor of width and heads (default: 1 on a large GPU, else 8)")
    parser.add_argument("--layers", type=int, help="number of layers (default: all)")
    parser.add_argument("--sequences", type=int, default=8, help="number of sequences (default: 8)")
    parser.add_argument("--context-length", type=int, default=1024, help="tokens in each sequence (default: 1024)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to save the results to")
    return parser


def _has_room() -> bool:
    """Whether there is a CUDA device with enough free memory for the full models."""
    return torch.cuda.is_available() and torch.cuda.mem_get_info()[0] >= ROOM


def _build_table(done: Sequence[Measurement]) -> Table:
    """One row per model."""
    table = Table(title="Seconds for one sequence, and peak memory")
    for heading in ("model", *STAGES, "load", "tensors", "device: forward, capture", "host"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=heading == "model")
    for row in done:
        shape = (
            f"{row.parameters / 1e9:.2f} G parameters, {row.sequences} x {row.context_length}, batches of {row.batch}"
        )
        narrowed = f", width / {row.divided_by}" if row.divided_by > 1 else ""
        device = " / ".join(f"{size / 2**30:.1f}" for size in row.device_bytes.values()) + " GiB"
        table.add_row(
            f"{row.model}\n[dim]{shape}{narrowed}, {row.device}[/dim]",
            *(f"{row.seconds[stage]:.3f}" for stage in STAGES),
            f"{row.load:.1f} in total",
            f"{row.stored_bytes / 1e6:.0f} MB",
            device if any(row.device_bytes.values()) else "none",
            f"{row.host_bytes / 2**30:.1f} GiB",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
