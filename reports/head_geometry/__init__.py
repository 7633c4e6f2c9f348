"""Geometry of single heads: s_N, the contribution of each token, directions of value states."""
