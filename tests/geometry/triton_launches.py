"""Compilation of Triton kernels for a GPU that is not there: how they are launched, and their code.

What does not belong here: which kernels, and what is expected of their code (the tests of each module of kernels).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

INTERPRETED = not torch.cuda.is_available()

Launch = tuple[str, tuple[dict[str, str], dict[str, Any], list[str], dict[str, Any]]]
"""Name of a kernel, and its types, constants, aligned arguments and options."""

COMPILE = """
import json, sys
from importlib import import_module
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

module, kernels = json.load(sys.stdin)
for name, (signature, constants, aligned, options) in kernels:
    names = list(signature)
    attrs = {(names.index(key),): [["tt.divisibility", 16]] for key in aligned}
    kernel = getattr(import_module(module), name)
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attrs)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert len(compiled.asm["cubin"]) > 0
    print(json.dumps([name, compiled.asm["ttir"], compiled.metadata.shared]))
"""
TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int32: "i32",
    torch.int64: "i64",
}


class Recorder:
    """The kernels, which note how they are launched."""

    def __init__(self, kernels: ModuleType) -> None:
        self.kernels = kernels
        self.launches: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self.kernels, name)
        return Launcher(partial(self.launch, name, kernel)) if hasattr(kernel, "arg_names") else kernel

    def launch(self, name: str, kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        constants = {key: value for key, value in options.items() if key in kernel.arg_names}
        options = {key: value for key, value in options.items() if key not in kernel.arg_names}
        signature, aligned, ones = {}, [], {}
        for key, value in zip(kernel.arg_names, args, strict=False):
            number = not isinstance(value, torch.Tensor)
            signature[key] = "i32" if number else "*" + TYPES[value.dtype]
            if number and value == 1:
                ones[key] = 1
            elif not number or value % 16 == 0:
                aligned.append(key)
        signature |= dict.fromkeys(constants | ones, "constexpr")
        signature = {key: signature[key] for key in kernel.arg_names}
        self.launches.setdefault(name, (signature, constants | ones, aligned, options))
        kernel[grid](*args, **constants if INTERPRETED else constants | options)


class Launcher:
    """A kernel that is launched as ``kernel[grid](…)``."""

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self.launch, grid)


def compiled_for_hopper(kernels: ModuleType, launches: Iterable[Launch], cache: Path) -> Iterator[tuple[str, str, int]]:
    """Name, TTIR and bytes of shared memory of each kernel, compiled for an H100 in a process that does not interpret.

    cache: where Triton may write.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps([kernels.__name__, list(launches)]),
        env=environment | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == 0, run.stderr
    for line in run.stdout.splitlines():
        yield tuple(json.loads(line))
