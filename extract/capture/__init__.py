"""Attention weights and value states, captured while a model reads."""
