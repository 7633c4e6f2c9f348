"""Assumptions 1 to 3: norms and similarity of value states, weights by position, and the sink."""
