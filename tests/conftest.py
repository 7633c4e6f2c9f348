"""Triton's kernels are interpreted where there is no GPU; Triton reads this when it is first imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
