"""Counts, radii, norms and sums of one selection of keys for every N, on the CPU and on a GPU."""
