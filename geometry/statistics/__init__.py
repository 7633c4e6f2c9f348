"""Inference: what is averaged over sequences and heads, with its errors."""
