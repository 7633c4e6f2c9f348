"""Assumptions 1-3: norms, similarity and weights by position, their fits, and heads drawn from them."""
