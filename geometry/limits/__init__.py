"""Limits of normalisation: distances, temperatures and sensitivity of the softmax (arXiv 2508.17821)."""
