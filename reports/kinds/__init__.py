"""Kinds of heads, what heads look at, and the plane of their curves."""
