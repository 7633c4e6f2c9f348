"""Theorems 1 and 2: lower bounds, the scale-free bound, and Monte Carlo tests of both."""
