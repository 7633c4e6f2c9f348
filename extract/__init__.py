"""From models and texts to tensor stores; the libraries of Hugging Face, which read both, send no telemetry."""

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
