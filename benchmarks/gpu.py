"""The selection profile on a GPU: all heads of a model, all N, against the model's own forward pass.

Holds the benchmark ``selection.gpu``, which needs CUDA.
"""

from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from benchmarks.checkpoints import LLAMA_2_7B
from benchmarks.measure import Benchmark, Result, alternate, compare
from geometry import selection_profile

SMALL = LLAMA_2_7B | {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}


def find_missing() -> str | None:
    """Requirement that this machine does not meet; None if there is none."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    return None if find_spec("triton") else "triton is not installed"


def measure_heads(*, config: dict[str, Any], context: int, repeats: int) -> list[Result]:
    """Every head's profile, layer by layer, against the bfloat16 forward pass of one sequence; random weights."""
    device = torch.device("cuda")
    with device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            LlamaConfig(**config), dtype=torch.bfloat16, attn_implementation="sdpa"
        ).eval()
    tokens = torch.randint(config["vocab_size"], (1, context), device=device)
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    head_dim = config["hidden_size"] // heads
    weights = torch.randn(layers, heads, context, device=device).mul(2).softmax(-1)
    values = torch.randn(layers, heads, context, head_dim, device=device)

    def profile_heads() -> None:
        for layer in range(layers):
            selection_profile(weights[layer], values[layer])
        torch.cuda.synchronize()

    seconds = alternate(profile_heads, partial(_run_forward, model, tokens), repeats=repeats)
    sizes = {"layers": layers, "heads": heads, "n": context, "head_dim": head_dim}
    ours = ("selection_profile of all heads, layer by layer, on the GPU", seconds[:, 0])
    forward = ("the same model's bfloat16 forward pass of one sequence", seconds[:, 1])
    return [compare("selection.gpu", "cost", ours, forward, sizes=sizes, target=1.0, note=torch.cuda.get_device_name())]


def _run_forward(model: Any, tokens: Tensor) -> None:
    with torch.inference_mode():
        model(input_ids=tokens, use_cache=False, logits_to_keep=1)
    torch.cuda.synchronize()


BENCHMARK = Benchmark(
    "selection.gpu",
    full=partial(measure_heads, config=LLAMA_2_7B, context=1024, repeats=11),
    small=partial(measure_heads, config=SMALL, context=128, repeats=3),
    missing=find_missing,
)
